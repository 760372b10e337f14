"""Proposing: the same action is one case, however often it is proposed; other content is a conflict, counted."""

from typing import Any

import pytest
from django.db import connections

from approvals import cases, proposals
from approvals.errors import ConflictingProposal, InvalidContent, NotPermitted
from approvals.models import Case, Proposal, Revision
from approvals.states import Verdict
from ledger.models import Operation
from ledger.states import AttemptOutcome, ControlEventKind
from ledger.tools import UnknownTool
from tests.worlds import (
    World,
    approved,
    claim,
    claimed,
    content,
    current,
    events,
    history,
    make_late,
    new_world,
    recorded,
    say,
    tag,
    withdrawn,
)


def propose(world: World, reference: str = "1842", *, step: int = 1, **changes: Any) -> cases.Proposed:
    facts = proposals.facts(reference=reference, action="refund", target="order:88213", step=step)
    return cases.propose(actor=world.agent, facts=facts, content=content(**changes))


def test_a_proposal_opens_a_pending_case_at_revision_one(world: World) -> None:
    answer = propose(world)

    case = current(answer.case)
    assert not answer.replayed
    assert (case.state, case.revision, case.agent_id) == ("pending", 1, world.agent.id)
    assert history(case) == [(1, "pending", "proposed")]
    assert case.proposal.sentence == "Refund 1,250.00 EUR on ch_1842"
    assert (case.proposal.amount_minor, case.proposal.currency) == (125_000, "EUR")
    assert not Operation.objects.exists()


def test_the_same_facts_and_content_are_the_same_case(world: World) -> None:
    first, second = propose(world), propose(world)

    assert second.replayed
    assert second.case.pk == first.case.pk
    assert (Case.objects.count(), Proposal.objects.count(), Revision.objects.count()) == (1, 1, 1)
    assert [(each.source, each.action, each.subject) for each in events(ControlEventKind.REPLAY)] == [
        ("agent:refund-agent", "refund", first.case.pk)
    ]


def test_grounds_and_trace_do_not_make_another_content(world: World) -> None:
    first = propose(world)
    again = propose(
        world, rationale="Worded anew.", evidence=[{"statement": "x"}], trace_id="4bf92f3577b34da6"
    )
    assert again.replayed
    assert current(first.case).proposal.rationale == "Lost in transit."


@pytest.mark.parametrize(
    "other",
    [
        {"amount_minor": 125_001},
        {"currency": "USD"},
        {"payment": "ch_1843"},
        {"expects": {"resource_version": 0}},
    ],
)
def test_other_content_under_the_same_facts_is_a_conflict_and_counted(
    world: World, other: dict[str, Any]
) -> None:
    case = propose(world).case
    with pytest.raises(ConflictingProposal) as refusal:
        propose(world, **other)

    assert refusal.value.case == case
    assert (Case.objects.count(), Proposal.objects.count(), Revision.objects.count()) == (1, 1, 1)
    (event,) = events(ControlEventKind.FINGERPRINT_CONFLICT)
    assert (event.source, event.action, event.subject) == ("agent:refund-agent", "refund", case.pk)


@pytest.mark.django_db(transaction=True)
def test_a_conflict_is_counted_once_and_committed_by_itself(world: World) -> None:
    propose(world)
    with pytest.raises(ConflictingProposal):
        propose(world, amount_minor=1)

    another_connection = connections["default"].copy()
    try:
        with another_connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM ledger_controlevent WHERE kind = 'fingerprint_conflict'")
            assert cursor.fetchone() == (1,)
    finally:
        another_connection.close()


@pytest.mark.parametrize(
    "otherwise",
    [{"reference": "1843"}, {"step": 2}],
)
def test_another_fact_is_another_case(world: World, otherwise: dict[str, Any]) -> None:
    assert propose(world).case.pk != propose(world, **otherwise).case.pk


def test_another_organisation_has_cases_of_its_own(world: World) -> None:
    other = new_world()
    first, second = propose(world), propose(other)
    assert not second.replayed
    assert first.case.pk != second.case.pk
    assert first.case.action_key != second.case.action_key


def test_proposing_again_finds_the_case_in_whatever_state_it_is(world: World) -> None:
    case = approved(world)
    assert propose(world).case == current(case)
    grant = claimed(world, "1843", target="order:2")
    recorded(grant)
    facts = proposals.facts(reference="1843", action="refund", target="order:2", step=1)
    answer = cases.propose(actor=world.agent, facts=facts, content=content())
    assert answer.replayed
    assert answer.case.state == "executed"
    assert Operation.objects.filter(order__subject=answer.case.pk).count() == 1


def test_only_an_agent_proposes(world: World) -> None:
    facts = proposals.facts(reference="1842", action="refund", target="order:88213", step=1)
    with pytest.raises(NotPermitted):
        cases.propose(actor=world.reviewer, facts=facts, content=content())
    assert not Case.objects.exists()


def test_an_action_without_a_tool_is_refused(world: World) -> None:
    facts = proposals.facts(reference="1842", action="wire", target="order:88213", step=1)
    with pytest.raises(UnknownTool):
        cases.propose(actor=world.agent, facts=facts, content=content())


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"amount_minor": 0}, "/parameters/amount_minor"),
        ({"amount_minor": "125000"}, "/parameters/amount_minor"),
        ({"amount_minor": True}, "/parameters/amount_minor"),
        ({"amount_minor": 500_001}, "/parameters/amount_minor"),
        ({"currency": "eur"}, "/parameters/currency"),
        ({"currency": "XXX"}, "/parameters/currency"),
        ({"currency": "KWD"}, "/parameters/amount_minor"),
        ({"payment": "pi_1"}, "/parameters/payment"),
        ({"unknown": 1}, "/parameters/unknown"),
        ({"expects": {"resource_version": -1}}, "/expects/resource_version"),
        ({"expects": {"resource_version": True}}, "/expects/resource_version"),
        ({"expects": {"weather": "fine"}}, "/expects/weather"),
        ({"evidence": [{"n": 2**53}]}, "/parameters"),
    ],
)
def test_content_the_tool_cannot_take_is_refused_and_says_where(
    world: World, changes: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(InvalidContent) as refusal:
        propose(world, **changes)
    assert [fault.pointer for fault in refusal.value.faults] == [pointer]
    assert not Proposal.objects.exists()


@pytest.mark.parametrize("number", [1e16, 1e20, 1e308, -1e17])
def test_a_number_that_does_not_read_back_as_itself_is_refused(world: World, number: float) -> None:
    # As a double it has a canonical text; read back it is an integer that has none, and no claim could compare it.
    with pytest.raises(InvalidContent):
        propose(world, evidence=[{"score": number}])


@pytest.mark.parametrize("number", [0.1, -0.0, 1.5, 5e-324, 2**53 - 1, 1e15])
def test_a_number_that_reads_back_as_itself_is_carried_through(world: World, number: float) -> None:
    case = approved(world, evidence=[{"score": number}])
    assert [grant.subject for grant in claim()] == [case.pk]  # the claim has recomputed its digest


# Proposing again, once nothing came of it.


@pytest.mark.parametrize("how", ["failed", "expired", "withdrawn"])
def test_what_came_to_nothing_can_be_proposed_again_and_gets_a_new_key(world: World, how: str) -> None:
    case = brought_to_nothing(world, how)
    first = current(case)
    old_keys = set(Operation.objects.values_list("order__key", flat=True))

    again = cases.revise(
        actor=world.agent, case_id=case.pk, seen=tag(case), content=content(rationale="Still owed.")
    )

    assert not again.replayed
    assert (again.case.state, again.case.revision) == ("pending", first.revision + 1)
    say(Verdict.APPROVE, case, world.reviewer)
    newest = Operation.objects.select_related("order").latest("order_id")
    assert newest.order.key not in old_keys
    assert newest.order.approved_revision == first.revision + 2
    assert newest.action_key == case.action_key
    assert Operation.objects.exclude(state="failed_before_commit").count() == 1


def test_an_approval_given_before_it_came_to_nothing_counts_no_more(world: World) -> None:
    case = brought_to_nothing(world, "withdrawn")
    again = cases.revise(actor=world.agent, case_id=case.pk, seen=tag(case), content=content()).case
    assert again.state == "pending"
    assert Operation.objects.filter(state="not_started").count() == 0


def brought_to_nothing(world: World, how: str) -> Case:
    if how == "failed":
        grant = claimed(world)
        recorded(grant, AttemptOutcome.REFUSED)
        return Case.objects.get(pk=grant.subject)
    case = approved(world)
    if how == "withdrawn":
        return withdrawn(world, case)
    make_late(case)
    assert cases.expire_due() == 1
    return case
