"""Every act a person can do about a case, through its form: it works, and every way it is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client

from accounts.models import Member, Role
from approvals import errors
from approvals.console.decisions import STATUSES
from approvals.models import Case, Proposal, Vote
from approvals.states import CaseState, Verdict
from config.problems import problem_of
from ledger import findings
from ledger.models import ControlEvent, Operation
from ledger.states import AttemptOutcome, ControlEventKind, FindingKind
from tests import worlds
from tests.console.doors import Person, at_the_console, raw_form, words
from tests.worlds import World, current

pytestmark = pytest.mark.django_db


def held(world: World) -> Case:
    case = worlds.proposed(world)
    worlds.say(Verdict.HOLD, case, world.second_reviewer)
    return current(case)


def rejected(world: World) -> Case:
    case = worlds.proposed(world)
    worlds.say(Verdict.REJECT, case, world.second_reviewer)
    return current(case)


@dataclass(frozen=True, slots=True)
class Deed:
    """An act, where it begins, and where it leads."""

    verdict: str
    begin: Callable[[World], Case]
    leads_to: CaseState
    owner_may: bool = True

    def __str__(self) -> str:
        return self.verdict


DEEDS = [
    Deed("approve", worlds.proposed, CaseState.APPROVED, owner_may=False),
    Deed("reject", worlds.proposed, CaseState.REJECTED),
    Deed("request_changes", worlds.proposed, CaseState.RETURNED),
    Deed("hold", worlds.proposed, CaseState.HELD),
    Deed("withdraw", worlds.proposed, CaseState.WITHDRAWN),
    Deed("release", held, CaseState.PENDING, owner_may=False),
    Deed("reopen", rejected, CaseState.PENDING, owner_may=False),
    Deed("revoke", worlds.approved, CaseState.PENDING),
]
every_deed = pytest.mark.parametrize("deed", DEEDS, ids=str)

WHY = "The order says otherwise."


def nothing_changed(case: Case, votes: int) -> bool:
    now = current(case)
    same = (now.state, now.revision, now.proposal_id) == (case.state, case.revision, case.proposal_id)
    return same and Vote.objects.filter(case=case).count() == votes


def a_code(deed: Deed) -> dict[str, str]:
    return {"reject": {"reason_code": "evidence"}, "request_changes": {"reason_code": "evidence"}}.get(
        deed.verdict, {}
    )


# Works.


@every_deed
def test_a_form_sent_from_the_page_is_recorded_and_leads_back_to_the_case(deed: Deed, world: World) -> None:
    case, reviewer = deed.begin(world), at_the_console(world)

    answer = reviewer.decide(case, deed.verdict, reason=WHY, **a_code(deed))

    assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (303, f"/cases/{case.pk}/")
    now = current(case)
    assert (now.state, now.revision) == (deed.leads_to, case.revision + 1)
    last = now.revisions.get(number=now.revision)
    assert (last.actor_name, last.reason) == (
        "Rita Demo",
        WHY,
    )
    page = reviewer.open(answer.headers["Location"]).content.decode()
    assert 'class="notice recorded"' in page
    assert f'data-recorded="draft {case.pk}-"' in page


def test_the_last_approval_writes_one_operation_and_the_page_says_that_nothing_was_sent_yet(
    world: World,
) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)

    answer = reviewer.decide(case, "approve")

    operation = worlds.operation(case)
    assert (operation.state, operation.order.approved_revision) == ("not_started", 2)
    page = words(reviewer.open(answer.headers["Location"]))
    assert "It was the last one needed and made revision 2: the operation is written" in page
    assert "Approved by Rita Demo, which made revision 2. No worker has taken it yet." in page


def test_at_the_highest_tier_two_reviewers_type_the_amount_and_a_reason() -> None:
    world = worlds.new_world(tier=3, approvals_required=2)
    case = worlds.proposed(world)
    first, second = at_the_console(world), at_the_console(world, "second_reviewer")

    answer = first.decide(case, "approve", reason=WHY, typed_amount="1,250.00")
    page = words(first.open(answer.headers["Location"]))
    assert "recorded: 1 of 2. Nothing is sent before the last one." in page
    assert "You have approved this revision; it waits for one more reviewer." in page
    assert current(case).state == CaseState.PENDING

    second.decide(case, "approve", reason=WHY, typed_amount="1250")
    assert current(case).state == CaseState.APPROVED
    assert Operation.objects.filter(order__subject=case.pk).count() == 1


def test_an_approval_can_be_taken_back_until_the_quorum_is_complete() -> None:
    world = worlds.new_world(tier=1, approvals_required=2)
    case, reviewer = worlds.proposed(world), at_the_console(world)
    reviewer.decide(case, "approve")

    reviewer.decide(case, "revoke")

    assert (current(case).state, current(case).revision) == (CaseState.PENDING, 1)
    assert "1 of 2, waits for you" in words(reviewer.case(case))


# Wrong method.


@every_deed
@pytest.mark.parametrize("method", ["get", "head", "put", "patch", "delete"])
def test_no_other_method_decides(deed: Deed, method: str, world: World) -> None:
    case, reviewer = deed.begin(world), at_the_console(world)
    votes = Vote.objects.filter(case=case).count()
    send: Any = getattr(reviewer.client, method)

    answer = send(f"/cases/{case.pk}/decisions/", raw_form(case, deed.verdict, reason=WHY))

    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert nothing_changed(case, votes)


def test_what_a_mail_scanner_opens_changes_nothing(world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)
    for url in (
        "/",
        f"/cases/{case.pk}/",
        f"/cases/{case.pk}/?panel=approve",
        "/search/?q=1842",
        "/operations/",
    ):
        assert reviewer.client.get(url, headers={"Sec-Purpose": "prefetch"}).status_code in (200, 302)
        assert Client().get(url).status_code == 302
        assert reviewer.client.head(url).status_code in (200, 302)
    assert nothing_changed(case, 0)
    assert not ControlEvent.objects.exists()


# Wrong person.


@every_deed
@pytest.mark.parametrize("handle", ["operator", "admin", "auditor"])
def test_who_is_no_reviewer_is_refused_and_sees_why(deed: Deed, handle: str, world: World) -> None:
    case, person = deed.begin(world), at_the_console(world, handle)
    votes = Vote.objects.filter(case=case).count()

    answer = person.send(case, raw_form(case, deed.verdict, reason=WHY))

    assert answer.status_code == 403
    assert "Nothing was recorded." in words(answer)
    assert nothing_changed(case, votes)
    assert "Only a reviewer can decide; you are here as" in words(person.case(case))
    assert 'id="panel-' not in person.case(case)


@every_deed
def test_a_reviewer_of_another_organisation_finds_no_such_case(deed: Deed, world: World) -> None:
    case, stranger = deed.begin(world), at_the_console(worlds.new_world())
    votes = Vote.objects.filter(case=case).count()

    answer = stranger.send(case, raw_form(case, deed.verdict, reason=WHY))

    assert answer.status_code == 404
    assert stranger.open(f"/cases/{case.pk}/").status_code == 404
    assert nothing_changed(case, votes)


def owner_who_reviews(world: World) -> Person:
    Member.objects.filter(pk=world.member("admin").pk).update(roles=[Role.ADMIN, Role.REVIEWER])
    return at_the_console(world, "admin")


@every_deed
def test_who_stands_behind_the_agent_may_stop_its_case_and_never_move_it_on(deed: Deed, world: World) -> None:
    case, owner = deed.begin(world), owner_who_reviews(world)

    answer = owner.send(case, raw_form(case, deed.verdict, reason=WHY, **a_code(deed)))

    if deed.owner_may:
        assert (answer.status_code, current(case).state) == (303, deed.leads_to)
    else:
        assert (answer.status_code, current(case).state) == (403, case.state)
        assert "You stand behind refund-agent, so somebody else has to do this." in words(owner.case(case))


def test_a_form_without_its_token_is_refused(world: World) -> None:
    case = worlds.proposed(world)
    reviewer = Person(world.member("reviewer"), Client(enforce_csrf_checks=True))

    answer = reviewer.send(case, raw_form(case, "approve"))

    assert answer.status_code == 403
    assert "Nothing was recorded." in words(answer)
    assert nothing_changed(case, 0)


def test_a_reviewer_who_has_lost_the_role_since_the_page_was_opened_is_refused(world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)
    form = reviewer.form(case, "approve")
    Member.objects.filter(pk=reviewer.member.pk).update(roles=[Role.AUDITOR])

    assert reviewer.send(case, form).status_code == 403
    assert nothing_changed(case, 0)


# Wrong state.


def executed(world: World) -> Case:
    grant = worlds.claimed(world)
    worlds.recorded(grant)
    return current(Case.objects.get(pk=grant.subject))


def executing(world: World) -> Case:
    return current(Case.objects.get(pk=worlds.claimed(world).subject))


@every_deed
@pytest.mark.parametrize(
    ("begin", "refusal", "sent"),
    [
        (executed, errors.AlreadyExecuted, "It has happened, once, and its receipt is stored."),
        (executing, errors.InProgress, "A worker has taken it and may have sent it."),
    ],
    ids=["executed", "executing"],
)
def test_what_has_begun_can_no_longer_be_decided(
    deed: Deed, begin: Callable[[World], Case], refusal: type[Exception], sent: str, world: World
) -> None:
    case, reviewer = begin(world), at_the_console(world, "second_reviewer")

    answer = reviewer.send(case, raw_form(case, deed.verdict, reason=WHY))

    expected = problem_of(refusal)
    assert expected
    assert answer.status_code == expected.status == 409
    assert "was not recorded" in words(answer)
    assert sent in words(answer)
    assert (current(case).state, current(case).revision) == (case.state, case.revision)


@every_deed
def test_what_one_state_allows_another_does_not(deed: Deed, world: World) -> None:
    """Each act is sent to a case in a state from which it does not lead on."""
    case = worlds.withdrawn(world, worlds.proposed(world))
    reviewer = at_the_console(world)

    answer = reviewer.send(case, raw_form(case, deed.verdict, reason=WHY))

    assert answer.status_code == 409
    assert "was not recorded" in words(answer)
    assert current(case).state == CaseState.WITHDRAWN


def test_an_expired_page_does_not_approve(world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)
    form = reviewer.form(case, "approve")
    with worlds.triggers_off():
        Proposal.objects.filter(pk=case.proposal_id).update(expires_at=Now() - timedelta(seconds=1))

    answer = reviewer.send(case, form)

    assert answer.status_code == 409
    assert "Your approval was not recorded" in words(answer)
    assert "The deadline has passed" in words(answer)
    assert "Nothing was sent." in words(answer)
    assert nothing_changed(current(case), 0)
    page = reviewer.case(case)
    assert "The deadline passed at" in words(page)
    assert 'id="panel-approve"' not in page
    assert 'id="panel-reject"' in page


def test_while_ledger_and_sink_disagree_nothing_is_approved_and_the_button_says_so(world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)
    form = reviewer.form(case, "approve")
    findings.open_finding(
        tenant_id=world.tenant.pk, kind=FindingKind.TWICE, about="ch_1842", subject=case.pk, order_id=None
    )

    assert reviewer.send(case, form).status_code == 409
    assert nothing_changed(case, 0)
    assert "Ledger and sink disagree about this case. That has to be settled first." in words(
        reviewer.case(case)
    )


# Stale.


@every_deed
def test_a_word_on_an_older_revision_is_not_recorded_and_the_draft_is_kept(deed: Deed, world: World) -> None:
    case, reviewer = deed.begin(world), at_the_console(world)
    form = reviewer.form(case, deed.verdict)
    other = at_the_console(world, "second_reviewer")
    if case.state == CaseState.PENDING:
        worlds.revised(world, case, amount_minor=1_250_000 // 4, payment="ch_4242")
    else:
        other.decide(
            case, {"held": "reject", "rejected": "reopen", "approved": "revoke"}[case.state], reason=WHY
        )
    now, votes = current(case), Vote.objects.filter(case=case).count()

    answer = reviewer.send(case, form, reason="My own words.", **a_code(deed))

    expected = problem_of(errors.VersionConflict)
    assert expected
    assert answer.status_code == expected.status == 412
    page = words(answer)
    assert "was not recorded" in page
    assert f"revision {now.revision}, at" in page
    assert "Nothing was sent." in page
    assert "Your draft is kept: “My own words.”" in page
    assert "approve anyway" not in page.lower()
    assert nothing_changed(now, votes)
    assert ControlEvent.objects.filter(kind=ControlEventKind.VERSION_CONFLICT, subject=case.pk).count() == 1


def test_the_conflict_page_tells_who_changed_what_side_by_side(world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)
    form = reviewer.form(case, "approve")
    worlds.revised(world, case, amount_minor=12_500, payment="ch_4242")

    page = words(reviewer.send(case, form))

    assert "refund-agent sent a new revision, revision 2, at" in page
    assert "after the page with revision 1 was shown to you and before you pressed Approve" in page
    for told in ("Amount ÷10", "1,250.00 EUR", "125.00 EUR", "Payment New target", "ch_1842", "ch_4242"):
        assert told in page


def test_the_digest_of_the_page_must_be_the_one_stored(world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)
    first_eight = case.proposal.digest[:8]

    answer = reviewer.send(case, raw_form(case, "approve", digest=first_eight + "0" * 56))

    assert answer.status_code == 412
    assert nothing_changed(case, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"revision": ""},
        {"revision": "0"},
        {"revision": "１"},
        {"revision": "1 "},
        {"revision": "99999999999"},
        {"digest": ""},
        {"digest": "9F" * 32},
        {"verdict": ""},
        {"verdict": "approve_anyway"},
    ],
)
def test_a_form_that_names_no_revision_digest_or_verdict_is_not_understood(
    changes: dict[str, str], world: World
) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)

    answer = reviewer.send(case, {**raw_form(case, "approve"), **changes})

    assert answer.status_code == 400
    assert nothing_changed(case, 0)


@pytest.mark.parametrize(
    "refusal",
    [
        errors.StateForbids,
        errors.AlreadyDecided,
        errors.InProgress,
        errors.AlreadyExecuted,
        errors.DeadlinePassed,
        errors.Disputed,
        errors.EarlierOperationLive,
        *STATUSES,
    ],
)
def test_a_refusal_has_one_status_on_the_page_and_in_the_interface_for_programs(
    refusal: type[errors.Refusal],
) -> None:
    problem = problem_of(refusal)
    assert problem
    assert STATUSES.get(refusal, 409) == problem.status


# Incomplete.


@pytest.mark.parametrize("verdict", ["reject", "request_changes"])
def test_a_reason_is_asked_for_in_the_panel_and_the_chosen_one_is_kept(verdict: str, world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)

    answer = reviewer.decide(case, verdict, reason="  ", reason_code="evidence")

    assert answer.status_code == 422
    page = answer.content.decode()
    assert f'id="panel-{verdict}" aria-labelledby="panel-{verdict}-title" open' in page
    assert '<option value="evidence" selected>' in page
    assert "Nothing was recorded." in words(page)
    assert nothing_changed(case, 0)


@pytest.mark.parametrize("typed", ["1,250.00", "1250.00", "1,250.00 EUR", "1250 EUR", " 1,250.00 EUR "])
def test_the_amount_is_accepted_as_the_hint_writes_it_with_or_without_its_currency(typed: str) -> None:
    world = worlds.new_world(tier=3)
    case, reviewer = worlds.proposed(world), at_the_console(world)
    assert "Must read 1,250.00 EUR; the currency may be left out." in words(reviewer.case(case))

    answer = reviewer.decide(case, "approve", typed_amount=typed, reason=WHY)

    assert (answer.status_code, current(case).state) == (303, CaseState.APPROVED)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("", "Type 1,250.00 EUR."),
        ("125.00", "125.00 is not 1,250.00 EUR."),
        ("1250.001", "“1250.001” is no amount; it must read 1,250.00 EUR."),
        ("1.250,00", "“1.250,00” is no amount; it must read 1,250.00 EUR."),
        ("１２５０", "“１２５０” is no amount; it must read 1,250.00 EUR."),
        ("-1250", "“-1250” is no amount; it must read 1,250.00 EUR."),
        ("1,250.00 USD", "“1,250.00 USD” is no amount; it must read 1,250.00 EUR."),
        ("1,250.00 eur", "“1,250.00 eur” is no amount; it must read 1,250.00 EUR."),
        ("EUR", "“EUR” is no amount; it must read 1,250.00 EUR."),
        ("125.00 EUR", "125.00 EUR is not 1,250.00 EUR."),
        ("1_250", "“1_250” is no amount; it must read 1,250.00 EUR."),
    ],
)
def test_another_amount_than_the_proposals_is_refused_with_both(typed: str, told: str) -> None:
    world = worlds.new_world(tier=3)
    case, reviewer = worlds.proposed(world), at_the_console(world)

    answer = reviewer.decide(case, "approve", typed_amount=typed, reason=WHY)

    assert answer.status_code == 422
    assert f"{told} Nothing was recorded." in words(answer)
    assert f">{WHY}</textarea>" in answer.content.decode()
    assert nothing_changed(case, 0)


def test_yen_are_typed_without_decimals() -> None:
    world = worlds.new_world(tier=3)
    case, reviewer = worlds.proposed(world, amount_minor=500, currency="JPY"), at_the_console(world)

    assert reviewer.decide(case, "approve", typed_amount="500.50", reason=WHY).status_code == 422
    assert reviewer.decide(case, "approve", typed_amount="500", reason=WHY).status_code == 303


@pytest.mark.parametrize("verdict", ["approve", "reject", "hold", "withdraw"])
@pytest.mark.parametrize("reason", ["x" * 2001, "a\0b"])
def test_a_reason_that_cannot_be_stored_is_refused_in_words(verdict: str, reason: str, world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)

    answer = reviewer.send(case, raw_form(case, verdict, reason=reason))

    assert answer.status_code == 422
    assert nothing_changed(case, 0)


def test_a_reason_of_no_list_is_refused(world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)

    assert reviewer.send(case, raw_form(case, "reject", reason=WHY, reason_code="made_up")).status_code == 422
    assert nothing_changed(case, 0)


def test_an_incomplete_form_about_an_older_revision_gets_no_panel_for_the_newer_one(world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)
    form = reviewer.form(case, "reject")
    worlds.revised(world, case, amount_minor=1)

    answer = reviewer.send(case, form, reason="x" * 2001)

    assert answer.status_code == 412
    assert 'id="panel-reject"' not in answer.content.decode()


# Twice.


@pytest.mark.parametrize(
    "deed", [each for each in DEEDS if each.verdict not in ("reopen", "revoke", "release")], ids=str
)
def test_a_second_click_is_answered_and_nothing_is_recorded_twice(deed: Deed, world: World) -> None:
    case, reviewer = deed.begin(world), at_the_console(world)
    form = {**reviewer.form(case, deed.verdict), "reason": WHY, **a_code(deed)}

    first, second = reviewer.send(case, form), reviewer.send(case, form)

    assert (first.status_code, second.status_code) == (303, 303)
    assert first.headers["Location"] == second.headers["Location"]
    assert current(case).revision == case.revision + 1
    assert Vote.objects.filter(case=case).count() == (0 if deed.verdict == "withdraw" else 1)
    assert Operation.objects.filter(order__subject=case.pk).count() == (1 if deed.verdict == "approve" else 0)
    assert "Nothing was recorded twice." in words(reviewer.open(second.headers["Location"]))


def test_approving_again_after_back_is_answered_even_when_it_has_been_carried_out(world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)
    form = reviewer.form(case, "approve")
    reviewer.send(case, form)
    worlds.recorded(worlds.claim()[0], AttemptOutcome.COMMITTED)

    assert reviewer.send(case, form).status_code == 303
    assert Operation.objects.count() == 1
    assert Vote.objects.count() == 1


def test_two_reviewers_who_disagree_at_once_get_one_decision(world: World) -> None:
    case = worlds.proposed(world)
    first, second = at_the_console(world), at_the_console(world, "second_reviewer")
    approval, rejection = first.form(case, "approve"), second.form(case, "reject")

    assert first.send(case, approval).status_code == 303
    assert second.send(case, rejection, reason=WHY).status_code == 412
    assert current(case).state == CaseState.APPROVED
