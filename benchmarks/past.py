"""A ledger with a long past: settled operations after one that the product itself has settled, in a few statements.

Triggers sleep meanwhile, since rows begin here in states that they otherwise only come to; constraints see every row.
"""

from collections.abc import Mapping
from typing import Any

from django.db import connection, models, transaction

from approvals.models import Case, Proposal, Revision, Vote
from benchmarks import bare, rig, seeding
from ledger.models import Attempt, Operation, Order, Resource
from tests.worlds import World, assert_machines_agree, triggers_off

EFFECTS_PER_RESOURCE = 10
_APART = 30
"""Seconds between two of them: a million reach back most of a year."""
_CHECKED = 200


def make_settled(database: str, world: World, *, count: int, original: str = seeding.BASE) -> None:
    """A database with so many settled operations, and the cases they belong to."""
    rig.copy_database(original, database)
    with rig.at(database):
        case = seeding.model(world, "nothing", "past")
    bare.drain(database)
    with rig.at(database), transaction.atomic(), triggers_off(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
        _fill(cursor, case, count)
    rig.run_sql(database, "VACUUM (ANALYZE)")


def check(world: World) -> None:
    """Holds a few of them against what the tests hold every database against. Raises AssertionError."""
    make_settled("bench_check", world, count=_CHECKED)
    with rig.at("bench_check"):
        assert Operation.objects.filter(state="committed").count() == _CHECKED + 1
        assert_machines_agree()


def _fill(cursor: Any, case: Case, count: int) -> None:
    order = Order.objects.get(subject=case.pk)
    first = {
        "case": case.pk,
        "proposal": case.proposal_id,
        "order": order.pk,
        "resource": Operation.objects.get(order=order).resource_id,
        "resources": max(1, count // EFFECTS_PER_RESOURCE),
        "count": count,
    }
    name = "left(encode(sha256(('past-' || n)::bytea), 'hex'), {0})"
    its_case, its_order = f"{case.pk} + n", f"{order.pk} + n"
    its_proposal = f"{case.proposal_id} + n"
    its_resource = f"{first['resource']} + 1 + n %% %(resources)s"
    its_token = "n / %(resources)s + 1"
    digest = name.format(64)
    _copy(cursor, Proposal, "id = %(proposal)s", {"id": its_proposal, "digest": digest}, first)
    named = {
        "id": its_case,
        "reference": "'past-' || n",
        "action_key": name.format(40),
        "proposal_id": its_proposal,
    }
    _copy(cursor, Case, "id = %(case)s", named, first)
    linked = {"case_id": its_case, "proposal_id": its_proposal}
    _copy(cursor, Revision, "case_id = %(case)s", linked, first)
    _copy(cursor, Vote, "case_id = %(case)s", {"case_id": its_case, "digest": digest}, first)
    _make_resources(cursor, first)
    ordered = {"id": its_order, "key": name.format(40), "digest": digest, "subject": its_case}
    _copy(cursor, Order, "id = %(order)s", ordered, first)
    settled = {
        "order_id": its_order,
        "resource_id": its_resource,
        "action_key": name.format(40),
        "token": its_token,
        "reference": "'past-' || n",
    }
    _copy(cursor, Operation, "order_id = %(order)s", settled, first)
    granted = {"operation_id": its_order, "token": its_token}
    _copy(cursor, Attempt, "operation_id = %(order)s", granted, first)
    for model in (Proposal, Case, Vote, Resource, Order):
        _go_on_counting(cursor, model)


def _make_resources(cursor: Any, first: Mapping[str, int]) -> None:
    cursor.execute(
        "INSERT INTO ledger_resource (id, tenant_id, name, version, token)"
        " SELECT id + 1 + n, tenant_id, 'past:' || n, each, each"
        " FROM ledger_resource, generate_series(0, %(resources)s - 1) n,"
        " LATERAL (SELECT %(count)s / %(resources)s + CASE WHEN n <= %(count)s %% %(resources)s THEN 1 ELSE 0 END"
        " AS each) most WHERE id = %(resource)s",
        first,
    )


def _copy(
    cursor: Any, kind: type[models.Model], which: str, own: Mapping[str, str], first: Mapping[str, int]
) -> None:
    """Rows 1 to ``count`` like those of the model case, with their own values in these columns, each at its time."""
    earlier = f" - make_interval(secs => (%(count)s - n) * {_APART})"
    values = {
        each.column: own.get(each.column, f"m.{each.column}{_shift(each, earlier)}")
        for each in kind._meta.concrete_fields
        if each.column is not None
        and not each.generated
        and (each.column in own or not isinstance(each, models.AutoField))
    }
    cursor.execute(
        f"INSERT INTO {kind._meta.db_table} ({', '.join(values)}) SELECT {', '.join(values.values())}"
        f" FROM generate_series(1, %(count)s) n, (SELECT * FROM {kind._meta.db_table} WHERE {which}) m",
        first,
    )


def _shift(column: "models.Field[Any, Any]", earlier: str) -> str:
    return earlier if isinstance(column, models.DateTimeField) else ""


def _go_on_counting(cursor: Any, kind: type[models.Model]) -> None:
    table = kind._meta.db_table
    cursor.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))")
