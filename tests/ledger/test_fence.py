"""The ledger's own fence: a statement that carries an old token writes nothing, whoever composes it."""

import pytest
from django.db import transaction

from ledger import outcomes
from ledger.models import Attempt, Operation, Resource
from ledger.states import AttemptOutcome
from tests.worlds import LAPSED, World, claimed, operation, recorded, report, take_over


def rows() -> list[object]:
    tables = (Operation, Attempt, Resource)
    return [list(table._default_manager.order_by("pk").values()) for table in tables]


def test_a_recording_by_an_old_token_finds_no_row_and_says_so(world: World) -> None:
    stalled = claimed(world, lease=LAPSED)
    take_over(worker="worker-b")
    before = rows()
    with (
        pytest.raises(RuntimeError, match="1 recordings were in force, 0 were written"),
        transaction.atomic(),
    ):
        outcomes.record([report(stalled)])
    assert rows() == before


def test_a_recording_of_what_is_settled_finds_no_row_and_says_so(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.REFUSED)
    before = rows()
    with pytest.raises(RuntimeError), transaction.atomic():
        outcomes.record([report(grant)])
    assert rows() == before


def test_only_the_newest_token_of_an_operation_is_in_force(world: World) -> None:
    stalled = claimed(world, lease=LAPSED)
    (successor,) = take_over(worker="worker-b")
    both = [report(stalled), report(successor)]
    assert outcomes.lock_in_force(both) == {(successor.order_id, successor.token): "started"}
    recorded(successor)
    assert outcomes.lock_in_force(both) == {}
    assert operation(stalled).state == "committed"
