"""A worker is killed or stopped with many orders in one call to the own ledger; another carries on with each."""

import pytest

from approvals.models import Case
from ledger.models import ControlEvent, Evidence
from ledger.states import OperationState
from tests.crashes.stage import OwnLedger, Stage, wait_for

MANY = 20

pytestmark = pytest.mark.django_db(transaction=True)


def test_killed_after_the_effects_and_before_their_answer_the_successor_finds_them_all_and_sends_nothing(
    stage: Stage, own_ledger: OwnLedger
) -> None:
    a, b, cases, held = stage.parked_together(own_ledger, "answer", many=MANY)
    a.kill()
    held.released.set()
    b.thaw()
    settled(stage, cases)
    stage.assert_each_happened_once(cases, own_ledger)
    assert second_attempts(stage, cases) == {("b@test", False, 1)}


def test_killed_before_the_request_arrives_the_successor_sends_each_once(
    stage: Stage, own_ledger: OwnLedger
) -> None:
    a, b, cases, held = stage.parked_together(own_ledger, "request", many=MANY)
    a.kill()
    held.dropped = True
    held.released.set()
    b.thaw()
    settled(stage, cases)
    stage.assert_each_happened_once(cases, own_ledger)
    assert second_attempts(stage, cases) == {("b@test", True, 1)}


def test_stopped_on_the_wire_its_request_arrives_after_the_successors_and_is_refused_for_each_order(
    stage: Stage, own_ledger: OwnLedger
) -> None:
    a, b, cases, held = stage.parked_together(own_ledger, "request", many=MANY)
    a.freeze()
    b.thaw()
    settled(stage, cases)
    a.thaw()
    held.released.set()
    wait_for("every late report", lambda: late_reports() == MANY)
    stage.assert_each_happened_once(cases, own_ledger)
    assert second_attempts(stage, cases) == {("b@test", True, 1)}


def test_stopped_beyond_its_lease_with_the_answer_on_its_way_it_is_refused_for_each_order(
    stage: Stage, own_ledger: OwnLedger
) -> None:
    a, b, cases, held = stage.parked_together(own_ledger, "answer", many=MANY)
    a.freeze()
    held.released.set()
    b.thaw()
    settled(stage, cases)
    a.thaw()
    wait_for("every late receipt", lambda: late_reports() == MANY)
    wait_for(
        "the fenced writes to be counted",
        lambda: ControlEvent.objects.filter(kind="fenced_write", source="worker:a@test").count() == MANY,
    )
    stage.assert_each_happened_once(cases, own_ledger)
    assert second_attempts(stage, cases) == {("b@test", False, 1)}


def late_reports() -> int:
    return Evidence.objects.filter(worker="a@test").count()


def settled(stage: Stage, cases: list[Case]) -> None:
    for case in cases:
        stage.wait_for_state(case, OperationState.COMMITTED)


def second_attempts(stage: Stage, cases: list[Case]) -> set[tuple[str, bool | None, int]]:
    """Who made them, whether they sent, how often they looked; each after one that was superseded."""
    seen = set()
    for case in cases:
        first, second = stage.attempts(case)
        assert (first.worker, first.outcome, second.outcome) == ("a@test", "superseded", "committed")
        seen.add((second.worker, second.sent, second.lookups))
    return seen
