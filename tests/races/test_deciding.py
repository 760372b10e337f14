"""Who decides first: the loser of each race is seen waiting, then told what it has lost to. Nothing happens twice."""

from collections.abc import Callable

import pytest

from approvals import cases
from approvals.errors import VersionConflict
from approvals.models import Case, Vote
from approvals.states import CaseState, Verdict
from approvals.tags import Tag
from ledger.models import Operation, Resource
from ledger.states import ControlEventKind
from tests.races.rivals import Came, passes_by, race
from tests.worlds import (
    World,
    approved,
    case_in,
    content,
    current,
    events,
    history,
    make_late,
    new_world,
    proposed,
    say,
    tag,
)

Act = Callable[[World, Case, Tag], object]


def approve(world: World, case: Case, seen: Tag) -> object:
    return say(Verdict.APPROVE, case, world.reviewer, seen=seen)


def approve_too(world: World, case: Case, seen: Tag) -> object:
    return say(Verdict.APPROVE, case, world.second_reviewer, seen=seen)


def reject(world: World, case: Case, seen: Tag) -> object:
    return say(Verdict.REJECT, case, world.second_reviewer, seen=seen)


def hold(world: World, case: Case, seen: Tag) -> object:
    return say(Verdict.HOLD, case, world.second_reviewer, seen=seen)


def revise(world: World, case: Case, seen: Tag) -> object:
    return cases.revise(actor=world.agent, case_id=case.pk, seen=seen, content=content(amount_minor=1))


def withdraw(world: World, case: Case, seen: Tag) -> object:
    return cases.withdraw(actor=world.agent, case_id=case.pk, seen=seen)


RACES: list[tuple[Act, Act, CaseState]] = [
    (approve, approve_too, CaseState.APPROVED),
    (approve, reject, CaseState.APPROVED),
    (reject, approve, CaseState.REJECTED),
    (approve, hold, CaseState.APPROVED),
    (approve, revise, CaseState.APPROVED),
    (revise, approve, CaseState.PENDING),
    (approve, withdraw, CaseState.APPROVED),
    (withdraw, approve, CaseState.WITHDRAWN),
    (revise, withdraw, CaseState.PENDING),
    (withdraw, revise, CaseState.WITHDRAWN),
]


@pytest.mark.parametrize(
    ("winner", "loser", "state"), RACES, ids=lambda value: value.__name__ if callable(value) else None
)
def test_the_first_wins_and_the_second_is_told_of_the_conflict(
    world: World, winner: Act, loser: Act, state: CaseState
) -> None:
    case = proposed(world)
    seen = tag(case)

    won, lost = race(winner=lambda: winner(world, case, seen), loser=lambda: loser(world, case, seen))

    assert won.error is None
    assert isinstance(lost.error, VersionConflict)
    assert (lost.error.seen_revision, lost.error.case and lost.error.case.revision) == (1, 2)
    assert (current(case).state, current(case).revision) == (state, 2)
    assert Operation.objects.count() == (1 if state == CaseState.APPROVED else 0)
    assert Vote.objects.count() <= 1
    assert len(events(ControlEventKind.VERSION_CONFLICT)) == 1


def test_two_who_approve_at_once_complete_a_quorum_of_two_once(db: None) -> None:
    world = new_world(approvals_required=2)
    case = proposed(world)
    seen = tag(case)

    won, lost = race(winner=lambda: approve(world, case, seen), loser=lambda: approve_too(world, case, seen))

    assert (won.error, lost.error) == (None, None)
    assert history(case) == [(1, "pending", "proposed"), (2, "approved", "approved")]
    assert Vote.objects.count() == 2
    assert Operation.objects.count() == 1


def test_a_double_click_in_two_processes_is_one_vote_and_one_operation(world: World) -> None:
    case = proposed(world)
    seen = tag(case)

    won, lost = race(winner=lambda: approve(world, case, seen), loser=lambda: approve(world, case, seen))

    assert [replayed(each) for each in (won, lost)] == [False, True]
    assert (Vote.objects.count(), Operation.objects.count()) == (1, 1)
    assert not events()


def test_a_retry_that_overtakes_its_own_first_call_is_answered_once_more(world: World) -> None:
    case = proposed(world)
    seen = tag(case)

    won, lost = race(winner=lambda: revise(world, case, seen), loser=lambda: revise(world, case, seen))

    assert [replayed(each) for each in (won, lost)] == [False, True]
    assert current(case).revision == 2
    assert not events()


def test_two_approvals_that_touch_one_new_resource_make_it_once(world: World) -> None:
    first, second = proposed(world), proposed(world, "1843")

    won, lost = race(
        winner=lambda: approve(world, first, tag(first)), loser=lambda: approve(world, second, tag(second))
    )

    assert (won.error, lost.error) == (None, None)
    assert Resource.objects.count() == 1
    assert Operation.objects.count() == 2


# The clock.


def test_the_clock_passes_by_a_case_that_is_being_decided(world: World) -> None:
    case = proposed(world)
    seen = tag(case)

    def approve_at_the_last_moment() -> None:
        approve(world, case, seen)
        make_late(case)

    held, passed = passes_by(holder=approve_at_the_last_moment, passer=cases.expire_due)

    assert held.error is None
    assert passed == Came(value=0)
    assert cases.expire_due() == 1  # its approval came in time, its claim did not
    assert current(case).state == "expired"


def test_what_the_clock_has_ended_is_not_approved_after_all(world: World) -> None:
    case = proposed(world)
    seen = tag(case)
    make_late(case)

    won, lost = race(winner=cases.expire_due, loser=lambda: approve(world, case, seen))

    assert won == Came(value=1)
    assert isinstance(lost.error, VersionConflict)
    assert (current(case).state, Vote.objects.count()) == ("expired", 0)


def test_two_clocks_end_a_case_once(world: World) -> None:
    case = case_in(world, CaseState.HELD)
    make_late(case)
    won, passed = passes_by(holder=cases.expire_due, passer=cases.expire_due)
    assert (won, passed) == (Came(value=1), Came(value=0))
    assert [each[1] for each in history(case)] == ["pending", "held", "expired"]


def test_two_who_revoke_at_once_revoke_once(world: World) -> None:
    case = approved(world)
    seen = tag(case)
    won, lost = race(
        winner=lambda: say(Verdict.REVOKE, case, world.reviewer, seen=seen),
        loser=lambda: say(Verdict.REVOKE, case, world.second_reviewer, seen=seen),
    )
    assert won.error is None
    assert isinstance(lost.error, VersionConflict)
    assert history(case)[-1] == (3, "pending", "revoked")
    assert len(history(case)) == 3


def replayed(came: Came) -> object:
    assert came.error is None, came.error
    return getattr(came.value, "replayed", None)
