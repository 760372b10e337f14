"""The operation's machine: every pair of states, tried through every door; only what is declared commits."""

from functools import partial
from itertools import product
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from ledger.machines import declared_moves
from ledger.models import Operation, Order
from ledger.states import OperationState
from tests.machines import (
    DOORS,
    Columns,
    Door,
    accepted,
    by_queryset_update,
    moves_the_trigger_allows,
    put,
    refused,
    states_of,
)
from tests.worlds import World, approved, operation

MOVES = {
    ("not_started", "not_started"),
    ("not_started", "started"),
    ("not_started", "failed_before_commit"),
    ("started", "started"),
    ("started", "outcome_unknown"),
    ("started", "committed"),
    ("started", "failed_before_commit"),
    ("outcome_unknown", "outcome_unknown"),
    ("outcome_unknown", "committed"),
    ("outcome_unknown", "failed_before_commit"),
    ("failed_before_commit", "committed"),  # correction, by the sink's own record; never the other way
}
"""Written by hand, from the table of docs/protocol.md; the code must not be its own judge."""

LONG_AGO = "2026-01-01T00:00:00Z"
WELL_FORMED: dict[str, dict[str, Any]] = {
    "not_started": {"due_at": LONG_AGO, "settled_at": None, "reference": None, "reason": None, "token": None},
    "started": {"due_at": LONG_AGO, "settled_at": None, "reference": None, "reason": None, "token": 1},
    "outcome_unknown": {"due_at": LONG_AGO, "settled_at": None, "reference": None, "reason": "?", "token": 1},
    "committed": {"due_at": None, "settled_at": LONG_AGO, "reference": "re_1", "reason": None, "token": 1},
    "failed_before_commit": {
        "due_at": None,
        "settled_at": LONG_AGO,
        "reference": None,
        "reason": "declined",
        "token": 1,
    },
}
"""What the other columns hold in each state, so that it is the move alone that is refused or accepted."""


def test_the_declarations_the_trigger_and_this_table_are_one() -> None:
    assert set(declared_moves(Operation)) == MOVES
    assert moves_the_trigger_allows("ledger_operation", "operation_moves_only_as_declared") == MOVES


def test_the_states_of_the_code_are_the_states_of_the_database() -> None:
    # No CHECK names the states: a row begins not_started and moves only as declared, so it never holds another word.
    allowed = moves_the_trigger_allows("ledger_operation", "operation_moves_only_as_declared")
    assert states_of(allowed) == set(OperationState.values)


@pytest.mark.parametrize("old", OperationState)
def test_only_declared_moves_are_accepted_whoever_writes(world: World, old: OperationState) -> None:
    it = operation(approved(world))
    with transaction.atomic():
        put(it, in_state(old))
        for new, door in product(OperationState, DOORS):
            columns = in_state(new)
            if (old, new) in MOVES:
                accepted(partial(door, it, columns))
            else:
                write_refused("operation_moves_only_as_declared", it, columns, door)
        transaction.set_rollback(True)


def test_a_committed_operation_can_never_be_written_again(world: World) -> None:
    it = operation(approved(world))
    with transaction.atomic():
        put(it, in_state("committed"))
        for columns in ({"reason": "other"}, {"reference": "re_2"}, {"settled_at": LONG_AGO}):
            write_refused("operation_moves_only_as_declared", it, columns)
        transaction.set_rollback(True)


@pytest.mark.parametrize("state", [state for state in OperationState if state != OperationState.NOT_STARTED])
def test_an_operation_cannot_begin_anywhere_but_not_started(world: World, state: OperationState) -> None:
    it = operation(approved(world))
    made = Operation(
        order_id=0, resource_id=it.resource_id, tool_id=it.tool_id, action_key="0" * 40, **in_state(state)
    )
    refused("operation_begins_not_started", lambda: made.save(force_insert=True))
    refused("operation_begins_not_started", lambda: Operation.objects.bulk_create([made]))


@pytest.mark.parametrize(
    ("column", "value"), [("order_id", 0), ("resource_id", 0), ("tool_id", 0), ("action_key", "0" * 40)]
)
def test_what_an_operation_is_about_never_changes(world: World, column: str, value: object) -> None:
    it = operation(approved(world))
    refused(
        "operation_identity_is_fixed",
        lambda: Operation.objects.filter(pk=it.pk).update(**{column: value}),
    )


@pytest.mark.parametrize(
    ("rule", "old", "new", "broken"),
    [
        ("settled_iff_settled_at", "started", "failed_before_commit", {"settled_at": None}),
        ("settled_iff_settled_at", "started", "failed_before_commit", {"due_at": LONG_AGO}),
        ("settled_iff_settled_at", "started", "started", {"settled_at": LONG_AGO}),
        ("settled_iff_settled_at", "started", "started", {"due_at": None}),
        ("committed_iff_reference", "started", "committed", {"reference": None}),
        ("committed_iff_reference", "started", "failed_before_commit", {"reference": "re_1"}),
        ("failed_with_a_reason", "started", "failed_before_commit", {"reason": None}),
        ("held_only_while_unresolved", "started", "committed", {"worker": "worker-a"}),
        ("unresolved_has_a_token", "not_started", "started", {"token": None}),
    ],
)
def test_state_and_columns_cannot_disagree(
    world: World, rule: str, old: str, new: str, broken: dict[str, object]
) -> None:
    it = operation(approved(world))
    with transaction.atomic():
        put(it, in_state(old))
        write_refused(rule, it, {**in_state(new), **broken})
        transaction.set_rollback(True)


def test_a_second_live_operation_of_an_action_is_refused(world: World) -> None:
    first = operation(approved(world))
    with transaction.atomic():
        again = copy(first.order, key="0" * 40)
        again.save(force_insert=True)
        second = Operation(
            order=again, resource=first.resource, tool_id=first.tool_id, action_key=first.action_key
        )
        refused("one_live_operation_per_action", lambda: second.save(force_insert=True))
        transaction.set_rollback(True)


def test_a_second_unresolved_operation_of_a_resource_is_refused(world: World) -> None:
    first, second = operation(approved(world)), operation(approved(world, "1843"))
    assert first.resource_id == second.resource_id
    with transaction.atomic():
        put(first, in_state("started"))
        write_refused("one_unresolved_operation_per_resource", second, in_state("started"))
        transaction.set_rollback(True)


def test_one_reference_of_the_sink_belongs_to_one_operation(world: World) -> None:
    first, second = operation(approved(world)), operation(approved(world, "1843", target="order:2"))
    with transaction.atomic():
        put(first, in_state("committed"))
        put(second, in_state("started"))
        write_refused("one_operation_per_sink_reference", second, in_state("committed"))
        transaction.set_rollback(True)


def test_many_rows_at_once_are_judged_one_by_one(world: World) -> None:
    its = [operation(approved(world, reference, target=reference)) for reference in ("1842", "1843")]
    for it in its:
        it.state, it.settled_at, it.reference, it.due_at = "committed", Now(), it.pk, None
    refused(
        "operation_moves_only_as_declared",
        lambda: Operation.objects.bulk_update(its, ["state", "settled_at", "reference", "due_at"]),
    )


def copy(order: Order, **changes: object) -> Order:
    fields = {
        field.name: getattr(order, field.name) for field in Order._meta.local_fields if field.name != "id"
    }
    return Order(**{**fields, **changes})


def in_state(state: str) -> dict[str, Any]:
    return {"state": str(state), **WELL_FORMED[state]}


def write_refused(rule: str, it: Operation, columns: Columns, door: Door = by_queryset_update) -> None:
    refused(rule, lambda: door(it, columns))
