"""The case's machine: every pair of states, tried through every door; only what is declared commits."""

from functools import partial
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, connection, transaction
from django_fsm import TransitionNotAllowed

from approvals.models import Case, Revision
from approvals.states import CaseState
from ledger.machines import declared_moves
from tests.machines import (
    DOORS,
    Columns,
    Door,
    accepted,
    by_queryset_update,
    by_raw_sql,
    moves_the_trigger_allows,
    put,
    refused,
)
from tests.worlds import World, broken_rule, current, proposed, triggers_off

MOVES = {
    ("pending", "pending"),
    ("pending", "approved"),
    ("pending", "returned"),
    ("pending", "held"),
    ("pending", "rejected"),
    ("pending", "withdrawn"),
    ("pending", "expired"),
    ("returned", "pending"),
    ("returned", "rejected"),
    ("returned", "withdrawn"),
    ("returned", "expired"),
    ("held", "pending"),
    ("held", "rejected"),
    ("held", "withdrawn"),
    ("held", "expired"),
    ("approved", "executing"),
    ("approved", "pending"),
    ("approved", "withdrawn"),
    ("approved", "expired"),
    ("approved", "failed"),
    ("executing", "executed"),
    ("executing", "failed"),
    ("executing", "unknown"),
    ("unknown", "executed"),
    ("unknown", "failed"),
    ("failed", "pending"),
    ("failed", "withdrawn"),
    ("failed", "expired"),
    ("expired", "pending"),
    ("withdrawn", "pending"),
    ("rejected", "pending"),
    # Corrections, by the sink's own record; from nowhere where an operation may still act.
    ("pending", "executed"),
    ("returned", "executed"),
    ("held", "executed"),
    ("approved", "executed"),
    ("failed", "executed"),
    ("expired", "executed"),
    ("withdrawn", "executed"),
    ("rejected", "executed"),
}
"""Written by hand, from the table of docs/protocol.md; the code must not be its own judge."""


def test_the_declarations_the_trigger_and_this_table_are_one() -> None:
    assert set(declared_moves(Case)) == MOVES
    assert moves_the_trigger_allows("approvals_case", "case_moves_only_as_declared") == MOVES


@pytest.mark.parametrize("old", CaseState)
def test_only_declared_moves_are_accepted_whoever_writes(world: World, old: CaseState) -> None:
    case = proposed(world)
    with transaction.atomic():
        put(case, {"state": old})
        for new, door in product(CaseState, DOORS):
            columns = {"state": new.value, "revision": 2}
            if (old, new) in MOVES:
                accepted(partial(door, case, columns))
            else:
                write_refused("case_moves_only_as_declared", case, columns, door)
        transaction.set_rollback(True)


def test_a_state_that_is_no_word_of_ours_is_refused(world: World) -> None:
    write_refused("case_moves_only_as_declared", proposed(world), {"state": "done", "revision": 2})


def test_the_revision_rises_by_exactly_one_at_every_write(world: World) -> None:
    case = proposed(world)
    for revision in (0, 1, 3, 1000):
        write_refused("case_revision_rises_by_one", case, {"state": "held", "revision": revision})


def test_a_write_that_changes_nothing_else_still_raises_the_revision(world: World) -> None:
    write_refused(
        "case_revision_rises_by_one", proposed(world), {"proposal_id": proposed(world, "1843").proposal_id}
    )


def test_what_makes_a_case_the_same_case_never_changes(world: World) -> None:
    case = proposed(world)
    others: dict[str, object] = {
        "tenant_id": UUID(int=1),
        "agent_id": 0,
        "tool_id": 0,
        "reference": "other",
        "action": "other",
        "target": "other",
        "step": 2,
        "action_key": "0" * 40,
    }
    for column, value in others.items():
        write_refused("case_identity_is_fixed", case, {column: value, "revision": 2}, by_raw_sql)


def test_a_case_cannot_begin_anywhere_but_pending(world: World) -> None:
    case = proposed(world)
    for state in set(CaseState) - {CaseState.PENDING}:
        refused("case_begins_pending_at_one", unsaved_copy(case, state=state).save)


def test_a_case_cannot_begin_at_a_later_revision(world: World) -> None:
    case = unsaved_copy(proposed(world), revision=2)
    refused("case_begins_pending_at_one", case.save)
    refused("case_begins_pending_at_one", lambda: Case.objects.bulk_create([case]))


def test_a_move_in_memory_alone_moves_nothing(world: World) -> None:
    case = proposed(world)

    case.approve()

    assert case.state == CaseState.APPROVED
    assert current(case).state == CaseState.PENDING


def test_the_machine_itself_refuses_a_move_before_the_database_does(world: World) -> None:
    case = proposed(world)
    with pytest.raises(TransitionNotAllowed):
        case.claim()


def test_a_case_can_be_read_anew_after_a_move(world: World) -> None:
    case = proposed(world)
    case.hold()

    case.refresh_from_db()

    assert case.state == CaseState.PENDING


@pytest.mark.django_db(transaction=True)
def test_a_revision_without_its_row_fails_at_commit(world: World) -> None:
    case = proposed(world)
    with (
        pytest.raises(IntegrityError) as refusal,
        transaction.atomic(),
    ):  # every statement passes, COMMIT does not
        by_raw_sql(case, {"state": "held", "revision": 2})
    assert broken_rule(refusal.value) == "case_revision_is_recorded"
    assert (current(case).state, current(case).revision) == ("pending", 1)


@pytest.mark.django_db(transaction=True)
def test_a_revision_with_its_row_commits_in_either_order(world: World) -> None:
    case = proposed(world)
    with transaction.atomic():
        Revision.objects.create(
            case=case,
            number=2,
            state="held",
            act="held",
            proposal_id=case.proposal_id,
            actor_kind="system",
            actor_id=0,
            actor_name="test",
        )
        by_raw_sql(case, {"state": "held", "revision": 2})
    assert current(case).revision == 2


@pytest.mark.parametrize(
    "table", ["approvals_revision", "approvals_vote", "approvals_proposal", "approvals_policy"]
)
def test_what_people_said_is_written_once(world: World, table: str) -> None:
    proposed(world)
    rule = f"{table.removeprefix('approvals_')}_rows_are_insert_only"
    with triggers_off(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO approvals_vote (case_id, revision, reviewer_id, verdict, digest, reason_code, reason)"
            " SELECT c.id, 1, m.id, 'approve', 'd', '', '' FROM approvals_case c, accounts_member m LIMIT 1"
        )
    refused(rule, lambda: run(f"UPDATE {table} SET {untouched(table)}"))
    refused(rule, lambda: run(f"DELETE FROM {table}"))
    refused(
        f"{table.removeprefix('approvals_')}_is_never_truncated", lambda: run(f"TRUNCATE {table} CASCADE")
    )


def test_no_case_goes_away(world: World) -> None:
    case = proposed(world)
    refused("case_rows_are_kept", lambda: run(f"DELETE FROM approvals_case WHERE id = {case.pk}"))
    refused("case_is_never_truncated", lambda: run("TRUNCATE approvals_case CASCADE"))


def untouched(table: str) -> str:
    """An assignment that changes nothing; it is refused all the same."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND attname <> 'id'"
            " ORDER BY attnum LIMIT 1",
            [table],
        )
        (column,) = cursor.fetchone()
    return f"{column} = {column}"


def run(statement: str) -> None:
    connection.check_constraints()  # TRUNCATE looks at its triggers only once no foreign key is still to be checked
    with connection.cursor() as cursor:
        cursor.execute(statement)


def write_refused(rule: str, case: Case, columns: Columns, door: Door = by_queryset_update) -> None:
    refused(rule, lambda: door(case, columns))


def unsaved_copy(case: Case, **changes: Any) -> Case:
    """The same case under another reference, as if it were new."""
    copied = {
        name: getattr(case, name)
        for name in ("tenant_id", "agent_id", "tool_id", "action", "target", "step", "proposal_id")
    }
    return Case(**{**copied, "reference": "other", "action_key": "0" * 40, **changes})
