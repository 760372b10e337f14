"""What the database holds for every writer: rows that are written once, numbers that never fall, words that exist."""

import re

import pgtrigger
import pytest
from django.db import connection, models, transaction

from accounts.models import Member, Role
from ledger.models import Attempt, ControlEvent, Evidence, Operation, Order, Resource, ToolVersion
from ledger.states import ControlEventKind, EnforcementClass
from tests.machines import refused
from tests.worlds import World, approved, attempts, claimed, operation, recorded, triggers_off

INSERT_ONLY = [ToolVersion, Order, Evidence, ControlEvent]
KEPT = ["ledger_tool", "ledger_resource", "ledger_operation", "ledger_attempt", "ledger_finding"]


@pytest.fixture
def a_row_everywhere(world: World) -> None:
    """One row in each table of the ledger."""
    grant = claimed(world)
    recorded(grant)
    Evidence.objects.create(operation_id=grant.order_id, token=1, worker="w", outcome="refused")
    ControlEvent.objects.create(
        tenant=world.tenant, kind=ControlEventKind.REPLAY, source="queue", action="refund"
    )
    run(
        "INSERT INTO ledger_finding (tenant_id, kind, about, detail, opened_at)"
        f" VALUES ('{world.tenant.pk}', 'late', 'x', '{{}}', now())"
    )


@pytest.mark.parametrize("model", INSERT_ONLY, ids=lambda model: model.__name__)
def test_a_row_that_is_written_once_is_neither_changed_nor_removed(
    a_row_everywhere: None, model: type[models.Model]
) -> None:
    table, rule = model._meta.db_table, f"{name_of(model)}_rows_are_insert_only"
    column = next(field.column for field in model._meta.local_fields if not field.primary_key)
    refused(rule, lambda: run(f"UPDATE {table} SET {column} = {column}"))
    refused(rule, lambda: run(f"DELETE FROM {table}"))
    refused(f"{name_of(model)}_is_never_truncated", lambda: run(f"TRUNCATE {table} CASCADE"))


@pytest.mark.parametrize("table", KEPT)
def test_a_row_that_changes_never_goes_away(a_row_everywhere: None, table: str) -> None:
    name = table.removeprefix("ledger_")
    refused(f"{name}_rows_are_kept", lambda: run(f"DELETE FROM {table}"))
    refused(f"{name}_is_never_truncated", lambda: run(f"TRUNCATE {table} CASCADE"))


def test_no_setting_of_a_session_switches_the_rules_off(a_row_everywhere: None) -> None:
    names = ", ".join(f"{trigger}" for trigger in pgtrigger_names("ledger_control_event"))
    with transaction.atomic():
        run(f"SET LOCAL pgtrigger.ignore = '{{{names}}}'")
        refused("control_event_rows_are_insert_only", lambda: run("DELETE FROM ledger_controlevent"))
    with pgtrigger.ignore("ledger.ControlEvent:control_event_rows_are_insert_only"):
        refused("control_event_rows_are_insert_only", lambda: run("DELETE FROM ledger_controlevent"))
        refused("control_event_rows_are_insert_only", lambda: ControlEvent.objects.all().delete())


def test_an_attempt_closes_once(world: World) -> None:
    grant = claimed(world)
    recorded(grant)
    for columns in ({"ended_at": None, "outcome": None}, {"outcome": "refused"}, {"note": "later thought"}):
        refused("attempts_close_once", lambda columns=columns: every(Attempt).update(**columns))  # type: ignore[misc]
    assert [each.outcome for each in attempts(grant)] == ["committed"]


@pytest.mark.parametrize(
    ("rule", "columns"),
    [
        ("ended_iff_outcome", {"outcome": "refused"}),
        ("ended_iff_outcome", {"ended_at": "2026-01-01T00:00:00Z"}),
        ("committed_with_a_receipt", {"outcome": "committed", "ended_at": "2026-01-01T00:00:00Z"}),
    ],
)
def test_an_attempt_says_how_it_ended_exactly_when_it_has_ended(
    world: World, rule: str, columns: dict[str, str]
) -> None:
    claimed(world)
    refused(rule, lambda: every(Attempt).update(**columns))


def test_the_token_of_a_resource_never_falls(world: World) -> None:
    claimed(world)
    Resource.objects.update(token=480)
    refused("tokens_never_fall", lambda: every(Resource).update(token=479))
    refused("tokens_never_fall", lambda: every(Resource).update(token=0))
    assert world.resource().token == 480


def test_the_version_of_a_resource_never_falls(world: World) -> None:
    approved(world)
    Resource.objects.update(version=7)
    refused("resource_versions_never_fall", lambda: every(Resource).update(version=6))


def test_the_token_of_an_operation_never_falls(world: World) -> None:
    grant = claimed(world)
    Operation.objects.update(token=grant.token + 5)
    refused("operation_tokens_never_fall", lambda: every(Operation).update(token=grant.token))
    with triggers_off():
        Operation.objects.update(token=grant.token)


def test_money_has_a_currency(world: World) -> None:
    order = operation(approved(world)).order
    order.pk, order.key, order.currency = None, "0" * 40, None
    order._state.adding = True
    refused("money_has_a_currency", order.save)


def test_one_idempotency_key_stands_for_one_order(world: World) -> None:
    order = operation(approved(world)).order
    order.pk = None
    order._state.adding = True
    refused("one_operation_per_idempotency_key", order.save)


def test_a_tool_version_without_a_key_window_cannot_promise_one(world: World) -> None:
    version = ToolVersion.objects.get(tool__name="refund")
    version.pk, version.number, version.key_window = None, 2, None
    version._state.adding = True
    refused("provider_key_has_a_window", version.save)


def test_the_enforcement_classes_are_those_the_database_knows() -> None:
    assert words_of_check("enforcement_class_is_known") == set(EnforcementClass.values)


def test_the_roles_are_those_the_database_knows(world: World) -> None:
    assert words_of_check("roles_are_known") == set(Role.values)
    refused("roles_are_known", lambda: every(Member).update(roles=["owner"]))


def every(model: type[models.Model]) -> models.QuerySet[models.Model]:
    return model._base_manager.all()


def name_of(model: type[models.Model]) -> str:
    """The table as its rules call it: ``ToolVersion`` → ``tool_version``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", model.__name__).lower()


def run(statement: str) -> None:
    connection.check_constraints()  # TRUNCATE looks at its triggers only once no foreign key is still to be checked
    with connection.cursor() as cursor:
        cursor.execute(statement)


def pgtrigger_names(prefix: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tgname FROM pg_trigger WHERE tgname LIKE 'pgtrigger_%%control_event%%'")
        names = [name for (name,) in cursor.fetchall()]
    assert names
    return [f"{prefix.replace('_event', 'event')}:{name}" for name in names] + names


def words_of_check(constraint: str) -> set[str]:
    """The words in single quotes that the CHECK names; only those of enumerations have no other."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [constraint])
        ((definition,),) = cursor.fetchall()
    return set(re.findall(r"'(\w+)'", definition))
