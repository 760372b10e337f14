"""The demo's cases: enough of each kind that every part of the console has something true to show."""

from typing import Any

import httpx
from django.conf import settings

from accounts.actors import agent_actor, person_actor
from approvals import cases, decisions, proposals
from approvals.decisions import Word
from approvals.models import Case
from approvals.proposals import Content
from approvals.states import Verdict
from approvals.tags import tag_of
from config.demo import seed
from config.demo.seed import Organisation


def add(to: Organisation) -> None:
    """Proposes the sample cases through the same functions the API calls; the workers carry out the approved ones."""
    seed.add_further_tools(to)
    _executed(to)
    _other_tools(to)
    _propose(
        to, "1851", "refund", "order:90771", _refund("ch_1851", 18_90, "EUR"), "Wrong size, returned unworn."
    )
    _propose(
        to, "1852", "refund", "order:90772", _refund("ch_1852", 500, "JPY"), "Shipping was charged twice."
    )
    _changed_after_a_vote(to)
    _returned(to)
    _propose(
        to,
        "1855",
        "refund_high",
        "order:90775",
        _refund("ch_1855", 2_140_00, "EUR"),
        # A right-to-left override and a look-alike letter: what a hostile text would use.
        "Policy 4.2 allows it, see help.example/\u202egro.elpmaxe and p\u0430yments.example.",
    )


def _other_tools(to: Organisation) -> None:
    """One approved case for each of the other enforcement classes, and one whose answer is lost."""
    invoice = {"invoice": "R-2026-117", "amount_minor": 740_00, "currency": "EUR"}
    notice = {"subject": "Your parcel is late", "text": "It left our stock today. Sorry for the delay."}
    lost = {"subject": "Your refund is on its way", "text": "It takes three to five days."}
    _order_fault("hang_after_commit", charge="luca@customer.example", kind="mail")
    for reference, action, target, parameters in (
        ("1860", "pay_invoice", "supplier:nordisk-emballage", invoice),
        ("1861", "set_config", "config:returns.window", {"value": "45 days"}),
        ("1862", "send_notice", "kim@customer.example", notice),
        ("1863", "send_notice", "luca@customer.example", lost),
    ):
        facts = proposals.facts(reference=reference, action=action, target=target, step=1)
        content = Content(parameters=parameters, expects={}, rationale="Asked for by the shop's team.")
        _approve(to, cases.propose(actor=agent_actor(to.agent), facts=facts, content=content).case)


def _approve(to: Organisation, case: Case) -> None:
    word = Word(Verdict.APPROVE, case.proposal.digest)
    reviewer = person_actor(to.people["reviewer"].member)
    decisions.decide(actor=reviewer, case_id=case.pk, seen=tag_of(case), word=word)


def _order_fault(fault: str, **fields: Any) -> None:
    order = {"fault": fault, **fields}
    httpx.post(f"{settings.SANDBOX_URL}/_sandbox/faults", json=order).raise_for_status()


def _executed(to: Organisation) -> None:
    """Three approved ones: the provider confirms the first, declines the second, and leaves us without an answer."""
    for reference, amount_minor, fault in (
        ("1836", 129_00, None),
        ("1837", 310_00, "decline"),
        ("1838", 64_50, "error_before_commit"),
    ):
        charge = f"ch_{reference}"
        if fault:
            _order_fault(fault, charge=charge)
        target = f"order:90{reference[1:]}"
        _approve(
            to,
            _propose(
                to, reference, "refund", target, _refund(charge, amount_minor, "EUR"), "Returned unworn."
            ),
        )


def _changed_after_a_vote(to: Organisation) -> None:
    """An approval on revision 1, then ten times the amount: the vote is void, and the page says so."""
    case = _propose(
        to, "1839", "refund_high", "order:90763", _refund("ch_1839", 98_04, "GBP"), "Parcel arrived late."
    )
    second = person_actor(to.people["second_reviewer"].member)
    word = Word(
        Verdict.APPROVE, case.proposal.digest, reason="Carrier confirms the delay.", typed_amount=98_04
    )
    decisions.decide(actor=second, case_id=case.pk, seen=tag_of(case), word=word)
    content = _content(
        _refund("ch_1839", 980_40, "GBP"), "Parcel never arrived; the whole order is refunded."
    )
    cases.revise(actor=agent_actor(to.agent), case_id=case.pk, seen=tag_of(case), content=content)


def _returned(to: Organisation) -> None:
    case = _propose(
        to, "1844", "refund", "order:90768", _refund("ch_1844", 310_00, "EUR"), "Customer is unhappy."
    )
    word = Word(
        Verdict.REQUEST_CHANGES, case.proposal.digest, "evidence", "Which item, and what was wrong with it?"
    )
    decisions.decide(
        actor=person_actor(to.people["reviewer"].member), case_id=case.pk, seen=tag_of(case), word=word
    )


def _propose(
    to: Organisation, reference: str, action: str, target: str, parameters: dict[str, Any], rationale: str
) -> Case:
    facts = proposals.facts(reference=reference, action=action, target=target, step=1)
    return cases.propose(
        actor=agent_actor(to.agent), facts=facts, content=_content(parameters, rationale)
    ).case


def _content(parameters: dict[str, Any], rationale: str) -> Content:
    evidence = [
        {
            "statement": f"{parameters['payment']} was paid and not disputed",
            "source": "payments",
            "fetched_at": "2026-11-30T10:58:00Z",
        }
    ]
    return Content(parameters=parameters, expects={}, rationale=rationale, evidence=evidence)


def _refund(payment: str, amount_minor: int, currency: str) -> dict[str, Any]:
    return {"payment": payment, "amount_minor": amount_minor, "currency": currency}
