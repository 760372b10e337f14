"""What many words amount to: the quorum, who still counts in it, and the same word said twice."""

from collections.abc import Callable

import pytest

from accounts.models import Agent, Member
from approvals.errors import AlreadyDecided, NotPermitted, StateForbids, VersionConflict
from approvals.models import Case, Revision, Vote
from approvals.states import CaseState, Verdict
from approvals.tags import Tag
from ledger.models import Operation
from ledger.states import ControlEventKind
from tests.worlds import (
    World,
    approve,
    approved,
    case_in,
    claim,
    current,
    events,
    history,
    new_world,
    operation,
    proposed,
    report,
    revised,
    say,
    switch_off,
    tag,
    withdrawn,
)
from workers import outcomes


@pytest.fixture
def strict(db: None) -> World:
    """An organisation where two have to approve."""
    return new_world(approvals_required=2)


def test_the_first_of_two_approvals_changes_nothing_on_the_case(strict: World) -> None:
    case = proposed(strict)
    seen = tag(case)

    say(Verdict.APPROVE, case, strict.reviewer)

    assert tag(case) == seen  # the second reviewer's page is as good as before
    assert history(case) == [(1, "pending", "proposed")]
    assert Vote.objects.count() == 1
    assert not Operation.objects.exists()


def test_the_second_approval_completes_the_quorum(strict: World) -> None:
    case = approve(proposed(strict), strict.reviewer, strict.second_reviewer)
    assert (case.state, case.revision) == ("approved", 2)
    assert {vote.revision for vote in Vote.objects.all()} == {1}
    assert Operation.objects.count() == 1


def test_one_person_is_no_quorum_however_often(strict: World) -> None:
    case = proposed(strict)
    for _ in range(3):
        say(Verdict.APPROVE, case, strict.reviewer)
    assert current(case).state == "pending"
    assert Vote.objects.count() == 1


def test_one_rejection_decides(strict: World) -> None:
    case = proposed(strict)
    say(Verdict.APPROVE, case, strict.reviewer)
    say(Verdict.REJECT, case, strict.second_reviewer)
    assert current(case).state == "rejected"
    assert not Operation.objects.exists()


def test_the_last_word_of_a_person_counts(strict: World) -> None:
    case = proposed(strict)
    say(Verdict.APPROVE, case, strict.reviewer)
    say(Verdict.REVOKE, case, strict.reviewer)
    say(Verdict.APPROVE, case, strict.second_reviewer)
    assert current(case).state == "pending"

    say(Verdict.APPROVE, case, strict.reviewer)

    assert (current(case).state, current(case).revision) == ("approved", 2)
    assert [vote.verdict for vote in Vote.objects.order_by("id")] == [
        "approve",
        "revoke",
        "approve",
        "approve",
    ]


def test_taking_back_before_the_quorum_leaves_the_case_where_it_is(strict: World) -> None:
    case = proposed(strict)
    say(Verdict.APPROVE, case, strict.reviewer)
    say(Verdict.REVOKE, case, strict.reviewer)
    assert history(case) == [(1, "pending", "proposed")]


def test_nobody_takes_back_the_word_of_another_before_the_quorum(strict: World) -> None:
    case = proposed(strict)
    say(Verdict.APPROVE, case, strict.reviewer)
    with pytest.raises(StateForbids):
        say(Verdict.REVOKE, case, strict.second_reviewer)
    say(Verdict.APPROVE, case, strict.second_reviewer)
    assert current(case).state == "approved"


@pytest.mark.parametrize("how", ["role", "member", "user"])
def test_the_word_of_a_reviewer_who_may_no_longer_decide_counts_no_more(strict: World, how: str) -> None:
    case = proposed(strict)
    say(Verdict.APPROVE, case, strict.reviewer)
    switch_off(strict, "reviewer", how)
    say(Verdict.APPROVE, case, strict.second_reviewer)
    assert current(case).state == "pending"
    assert not Operation.objects.exists()


def test_the_word_of_who_has_come_to_stand_behind_the_agent_counts_no_more(strict: World) -> None:
    case = proposed(strict)
    say(Verdict.APPROVE, case, strict.reviewer)
    Agent.objects.filter(pk=case.agent_id).update(owner=strict.member("reviewer"))
    say(Verdict.APPROVE, case, strict.second_reviewer)
    assert current(case).state == "pending"


def test_new_content_voids_the_words_said_about_the_old(strict: World) -> None:
    case = proposed(strict)
    say(Verdict.APPROVE, case, strict.reviewer)
    revised(strict, case, amount_minor=1)
    say(Verdict.APPROVE, case, strict.second_reviewer)
    assert current(case).state == "pending"
    assert [(vote.revision, vote.verdict) for vote in Vote.objects.order_by("id")] == [
        (1, "approve"),
        (2, "approve"),
    ]

    say(Verdict.APPROVE, case, strict.reviewer)
    assert (current(case).state, current(case).revision) == ("approved", 3)


def test_hold_and_release_void_the_words_said_before(strict: World) -> None:
    case = proposed(strict)
    say(Verdict.APPROVE, case, strict.reviewer)
    say(Verdict.HOLD, case, strict.second_reviewer)
    say(Verdict.RELEASE, case, strict.second_reviewer)
    say(Verdict.APPROVE, case, strict.second_reviewer)
    assert current(case).state == "pending"


def test_one_reviewer_can_revoke_what_another_has_approved(world: World) -> None:
    case = approved(world)
    say(Verdict.REVOKE, case, world.second_reviewer, reason="Wrong order.")

    assert history(case) == [
        (1, "pending", "proposed"),
        (2, "approved", "approved"),
        (3, "pending", "revoked"),
    ]
    it = operation(case)
    assert (it.state, it.reason, it.due_at) == ("failed_before_commit", "revoked", None)
    assert it.settled_at is not None


def test_after_a_revocation_a_new_approval_is_a_new_intent(world: World) -> None:
    case = approved(world)
    first = operation(case)
    say(Verdict.REVOKE, case, world.reviewer)

    approve(case, world.reviewer)

    second = operation(case)
    assert second.order.approved_revision == 4
    assert second.order.key != first.order.key
    assert second.action_key == first.action_key
    assert [each.state for each in Operation.objects.order_by("order_id")] == [
        "failed_before_commit",
        "not_started",
    ]


# The same word twice.

MOVING = {
    Verdict.APPROVE: CaseState.PENDING,
    Verdict.REJECT: CaseState.PENDING,
    Verdict.REQUEST_CHANGES: CaseState.PENDING,
    Verdict.HOLD: CaseState.PENDING,
    Verdict.RELEASE: CaseState.HELD,
    Verdict.REVOKE: CaseState.APPROVED,
    Verdict.REOPEN: CaseState.REJECTED,
}


@pytest.mark.parametrize("verdict", Verdict)
def test_a_double_click_is_answered_not_refused(world: World, verdict: Verdict) -> None:
    case = case_in(world, MOVING[verdict])
    seen, digest = tag(case), case.proposal.digest
    first = say(verdict, case, world.reviewer, seen=seen, digest=digest)
    before = (Vote.objects.count(), Revision.objects.count(), Operation.objects.count())

    second = say(verdict, case, world.reviewer, seen=seen, digest=digest)

    assert (first.replayed, second.replayed) == (False, True)
    assert (second.case.state, second.case.revision) == (first.case.state, first.case.revision)
    assert (Vote.objects.count(), Revision.objects.count(), Operation.objects.count()) == before
    assert not events(ControlEventKind.VERSION_CONFLICT)


def test_a_double_click_on_a_word_that_waits_for_others_is_answered(strict: World) -> None:
    case = proposed(strict)
    say(Verdict.APPROVE, case, strict.reviewer)
    assert say(Verdict.APPROVE, case, strict.reviewer).replayed
    say(Verdict.REVOKE, case, strict.reviewer)
    assert say(Verdict.REVOKE, case, strict.reviewer).replayed
    assert Vote.objects.count() == 2


def test_a_repeat_is_answered_even_once_it_has_been_carried_out(world: World) -> None:
    case = proposed(world)
    seen = tag(case)
    approve(case, world.reviewer)
    for grant in claim():
        outcomes.record([report(grant)])

    answer = say(Verdict.APPROVE, case, world.reviewer, seen=seen)

    assert answer.replayed
    assert answer.case.state == "executed"


def test_the_first_of_two_reviewers_is_answered_when_the_second_has_completed_it(strict: World) -> None:
    case = proposed(strict)
    seen = tag(case)
    approve(case, strict.reviewer, strict.second_reviewer)
    assert say(Verdict.APPROVE, case, strict.reviewer, seen=seen).replayed


UNDONE: list[tuple[str, Callable[[World, Case], object]]] = [
    ("revoked", lambda world, case: say(Verdict.REVOKE, case, world.second_reviewer)),
    ("withdrawn", withdrawn),
    (
        "revoked and approved by another",
        lambda world, case: (
            say(Verdict.REVOKE, case, world.second_reviewer),
            say(Verdict.APPROVE, case, world.second_reviewer),
        ),
    ),
    (
        "revoked, revised, approved by another",
        lambda world, case: (
            say(Verdict.REVOKE, case, world.second_reviewer),
            revised(world, case, amount_minor=499_999),
            say(Verdict.APPROVE, case, world.second_reviewer),
        ),
    ),
]


@pytest.mark.parametrize("undo", [undo for _, undo in UNDONE], ids=[name for name, _ in UNDONE])
def test_a_word_that_has_been_undone_is_not_answered_as_if_it_stood(
    world: World, undo: Callable[[World, Case], object]
) -> None:
    case = proposed(world)
    seen, digest = tag(case), case.proposal.digest
    say(Verdict.APPROVE, case, world.reviewer, seen=seen, digest=digest)
    undo(world, case)
    before = Vote.objects.count()

    with pytest.raises(VersionConflict):
        say(Verdict.APPROVE, case, world.reviewer, seen=seen, digest=digest)

    assert Vote.objects.count() == before


def test_a_release_is_not_answered_once_the_case_is_held_again(world: World) -> None:
    case = case_in(world, CaseState.HELD)
    seen = tag(case)
    say(Verdict.RELEASE, case, world.reviewer)
    say(Verdict.HOLD, case, world.second_reviewer)

    with pytest.raises(VersionConflict):
        say(Verdict.RELEASE, case, world.reviewer, seen=seen)

    assert current(case).state == "held"


def test_an_approval_the_other_reviewer_overruled_is_not_answered_as_if_it_stood(strict: World) -> None:
    case = proposed(strict)
    seen = tag(case)
    say(Verdict.APPROVE, case, strict.reviewer)
    say(Verdict.REJECT, case, strict.second_reviewer)
    with pytest.raises(VersionConflict):
        say(Verdict.APPROVE, case, strict.reviewer, seen=seen)


def test_another_word_on_the_same_revision_is_no_repeat(world: World) -> None:
    case = proposed(world)
    seen = tag(case)
    say(Verdict.APPROVE, case, world.reviewer)
    with pytest.raises(VersionConflict):
        say(Verdict.REJECT, case, world.reviewer, seen=seen)
    with pytest.raises(AlreadyDecided):
        say(Verdict.REJECT, case, world.reviewer)
    assert current(case).state == "approved"


def test_the_same_word_of_another_person_is_no_repeat(world: World) -> None:
    case = proposed(world)
    seen = tag(case)
    say(Verdict.APPROVE, case, world.reviewer)
    with pytest.raises(VersionConflict):
        say(Verdict.APPROVE, case, world.second_reviewer, seen=seen)


def test_a_repeat_with_another_digest_is_no_repeat(world: World) -> None:
    case = proposed(world)
    seen = tag(case)
    say(Verdict.APPROVE, case, world.reviewer)
    with pytest.raises(VersionConflict):
        say(Verdict.APPROVE, case, world.reviewer, seen=seen, digest="0" * 64)
    with pytest.raises(VersionConflict):
        say(Verdict.APPROVE, case, world.reviewer, seen=Tag(1, "0" * 8), digest="0" * 64)


def test_a_repeat_by_a_reviewer_who_has_lost_the_role_is_refused_before_it_is_answered(world: World) -> None:
    case = proposed(world)
    seen = tag(case)
    say(Verdict.APPROVE, case, world.reviewer)
    switch_off(world, "reviewer", "role")
    with pytest.raises(NotPermitted):
        say(Verdict.APPROVE, case, world.reviewer, seen=seen)


def test_a_quorum_that_is_complete_again_is_counted_by_the_next_click(strict: World) -> None:
    case = proposed(strict)
    say(Verdict.APPROVE, case, strict.second_reviewer)
    member = strict.member("second_reviewer")
    switch_off(strict, "second_reviewer", "role")
    say(Verdict.APPROVE, case, strict.reviewer)
    assert current(case).state == "pending"
    Member.objects.filter(pk=member.pk).update(roles=member.roles)
    answer = say(Verdict.APPROVE, case, strict.reviewer)
    assert (answer.case.state, answer.replayed) == ("approved", False)
    assert say(Verdict.APPROVE, case, strict.reviewer, seen=Tag(1, case.proposal.digest[:8])).replayed


def test_a_repeat_under_a_tag_that_was_never_given_is_a_conflict(world: World) -> None:
    case = proposed(world)
    say(Verdict.APPROVE, case, world.reviewer)
    with pytest.raises(VersionConflict):
        say(Verdict.APPROVE, case, world.reviewer, seen=Tag(1, "f" * 8))
