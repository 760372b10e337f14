"""What the clock ends: before the decision, between approval and claim, and never after the claim."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now

from approvals import cases
from approvals.models import Case, Revision
from approvals.states import CaseState
from ledger.models import Operation
from ledger.states import AttemptOutcome
from tests.worlds import (
    World,
    approve,
    approved,
    case_in,
    claim,
    current,
    history,
    make_late,
    operation,
    proposed,
    recorded,
    revised,
    triggers_off,
    withdrawn,
)

EXPIRES = (CaseState.PENDING, CaseState.RETURNED, CaseState.HELD, CaseState.APPROVED)


@pytest.mark.parametrize("state", CaseState)
def test_the_clock_ends_what_waits_and_nothing_else(world: World, state: CaseState) -> None:
    case = case_in(world, state)
    before = current(case)
    make_late(case)

    ended = cases.expire_due()

    now = current(case)
    if state in EXPIRES:
        assert (ended, now.state, now.revision) == (1, "expired", before.revision + 1)
        last = Revision.objects.get(case=case, number=now.revision)
        assert (last.act, last.actor_kind, last.actor_name) == ("expired", "system", "clock")
    else:
        assert (ended, now.state, now.revision) == (0, state, before.revision)


def test_nothing_expires_before_its_deadline(world: World) -> None:
    approved(world)
    proposed(world, "1843")
    assert cases.expire_due() == 0


def test_an_approved_case_that_expires_takes_its_operation_with_it(world: World) -> None:
    case = approved(world)
    make_late(case)
    assert cases.expire_due() == 1
    it = operation(case)
    assert (it.state, it.reason, it.due_at) == ("failed_before_commit", "expired", None)
    assert claim() == []


def test_what_has_expired_expires_once(world: World) -> None:
    case = proposed(world)
    make_late(case)
    assert [cases.expire_due(), cases.expire_due()] == [1, 0]
    assert history(case) == [(1, "pending", "proposed"), (2, "expired", "expired")]


def test_one_sweep_ends_no_more_than_it_is_asked_to_and_the_next_goes_on(world: World) -> None:
    for number in range(5):
        make_late(proposed(world, str(number)))
    assert [cases.expire_due(most=2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_case_of_its_own_deadline_each(world: World) -> None:
    late, other = proposed(world), proposed(world, "1843")
    make_late(late)
    cases.expire_due()
    assert (current(late).state, current(other).state) == ("expired", "pending")


def test_new_content_has_a_new_deadline(world: World) -> None:
    case = proposed(world)
    make_late(case)
    revised(world, case, amount_minor=1)
    assert cases.expire_due() == 0
    assert current(case).state == "pending"


def test_an_approval_that_waits_behind_a_busy_resource_expires_like_any_other(world: World) -> None:
    first, second = approved(world), approved(world, "1843")
    claim(most=1)
    make_late(second)
    assert cases.expire_due() == 1
    assert (current(first).state, current(second).state) == ("executing", "expired")


def test_late_approvals_are_found_behind_many_that_are_not_late(world: World) -> None:
    for number in range(4):
        approved(world, f"early-{number}")
    make_late(late := approved(world, "late"))
    assert cases.expire_due(most=2) == 1
    assert current(late).state == "expired"


# What has failed, and was not asked for again.


def failed_long_ago(world: World, reference: str = "1842", *, days: float) -> Case:
    case = case_in(world, CaseState.FAILED, reference)
    with triggers_off():
        Operation.objects.filter(order__subject=case.pk).update(settled_at=Now() - timedelta(days=days))
    return case


def test_what_has_failed_expires_once_no_retry_may_come(world: World) -> None:
    late = failed_long_ago(world, days=31)
    assert failed_long_ago(world, "1843", days=29).state == "failed"
    assert cases.expire_failed() == 1
    assert history(late)[-1][1:] == ("expired", "expired")
    assert cases.expire_failed() == 0


def test_what_has_failed_anew_has_its_horizon_anew(world: World) -> None:
    case = failed_long_ago(world, days=31)
    approve(revised(world, case), world.reviewer)
    (grant,) = claim()
    recorded(grant, AttemptOutcome.REFUSED)
    assert cases.expire_failed() == 0
    assert current(case).state == "failed"


def test_what_has_failed_is_found_behind_what_has_failed_anew(world: World) -> None:
    for number in range(3):
        case = failed_long_ago(world, str(number), days=31)
        approve(revised(world, case), world.reviewer)
        (grant,) = claim()
        recorded(grant, AttemptOutcome.REFUSED)
    late = failed_long_ago(world, "late", days=31)
    assert cases.expire_failed(most=2) == 1
    assert current(late).state == "expired"


def test_what_has_failed_can_be_withdrawn(world: World) -> None:
    assert withdrawn(world, case_in(world, CaseState.FAILED)).state == "withdrawn"
