"""A long listing costs time, not memory; and two runs at once compare each page once."""

import threading
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection

from config.demo import seed
from ledger.models import Finding, Operation, Reconciliation, Resource, Tool, ToolVersion
from ledger.reconciliation import Overtaken
from tests.races.rivals import PATIENCE, Rival
from tests.reconciliation.listings import Endless, Listed
from tests.worlds import World, new_world, proposed, triggers_off
from workers.connectors.answers import Page
from workers.reconciliation import pass_over

EFFECTS = 12_000
MISSING = 10


@pytest.fixture
def version(world: World) -> ToolVersion:
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    return ToolVersion.objects.create(tool=tool, number=2, **{**seed.REFUND, "settle_time": timedelta(0)})


def test_a_pass_over_many_effects_needs_the_memory_of_a_page(world: World, version: ToolVersion) -> None:
    fill(world, version, EFFECTS + MISSING)
    tracemalloc.start()
    began = time.monotonic()
    row = pass_over(
        version=version, sink=Endless(EFFECTS, page_size=500), since=datetime.now(UTC) - timedelta(days=1)
    )
    took, (_, peak) = time.monotonic() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert row is not None
    assert (row.effects, row.operations, row.opened) == (EFFECTS, EFFECTS + MISSING, MISSING)
    assert set(Finding.objects.values_list("kind", flat=True)) == {"missing"}
    assert peak < 5_000_000, f"{peak} bytes, {took:.1f} s"


def fill(world: World, version: ToolVersion, count: int) -> None:
    """So many committed operations, keys and references counting up, by a hand at the database."""
    resource = Resource.objects.create(tenant=world.tenant, name="order:1")
    values: dict[str, Any] = {
        "tenant": world.tenant.pk,
        "tool": version.tool_id,
        "version": version.pk,
        "resource": resource.pk,
        "count": count,
        "case": proposed(world).pk,
    }
    with triggers_off(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute(_ORDERS, values)
        cursor.execute(_OPERATIONS, values)
        cursor.execute(_ATTEMPTS, values)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ledger_order, ledger_operation, ledger_attempt")


_ORDERS = """
INSERT INTO ledger_order (tenant_id, key, fingerprint, digest, subject, approved_revision, tool_version_id, body,
                          amount_minor, currency, created_at)
SELECT %(tenant)s, lpad(to_hex(n), 40, '0'), repeat('f', 64), repeat('d', 64), %(case)s, 1, %(version)s,
       '{}', 100, 'EUR', now() - interval '3 minutes'
FROM generate_series(0, %(count)s - 1) n
"""
_OPERATIONS = """
INSERT INTO ledger_operation (order_id, resource_id, tool_id, action_key, state, token, attempt_count, reference,
                              settled_at, due_at)
SELECT id, %(resource)s, %(tool)s, key, 'committed', 1, 1, 'e' || (row_number() OVER (ORDER BY id) - 1),
       now() - interval '1 minute' + (row_number() OVER (ORDER BY id)) * interval '1 microsecond', NULL
FROM ledger_order WHERE tool_version_id = %(version)s
"""
_ATTEMPTS = """
INSERT INTO ledger_attempt (operation_id, number, token, worker, started_at, ended_at, outcome, sent, lookups,
                            answer_stored, receipt)
SELECT id, 1, 1, 'w', now() - interval '2 minutes', now(), 'committed', true, 0, false, '{}'
FROM ledger_order WHERE tool_version_id = %(version)s
"""


@pytest.mark.django_db(transaction=True)
def test_of_two_runs_on_one_pass_one_goes_on_and_the_other_stops(transactional_db: None) -> None:
    world = new_world()
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    version = ToolVersion.objects.create(tool=tool, number=2, **{**seed.REFUND, "settle_time": timedelta(0)})
    sink = Meeting()
    sink.add(key="a" * 40)
    sink.add(key="b" * 40)
    sink.add()

    runs = [Rival(lambda: pass_over(version=version, sink=sink)) for _ in range(2)]
    for run in runs:
        run.start()
    errors = [run.join(patience=PATIENCE).error for run in runs]

    assert [type(error) for error in errors if error] in ([], [Overtaken])
    assert Reconciliation.objects.filter(ended_at=None).count() == 0
    kinds = sorted(Finding.objects.values_list("kind", flat=True))
    assert kinds == ["foreign", "unrecorded", "unrecorded"]
    assert Finding.objects.get(kind="foreign").detail["count"] == 1
    assert Operation.objects.count() == 0


class Meeting(Listed):
    """Gives its first page when two have asked for it."""

    def __init__(self) -> None:
        super().__init__()
        self._both = threading.Barrier(2)
        self._met = threading.Semaphore(2)

    def list_effects(self, *arguments: Any, **options: Any) -> Page:
        if self._met.acquire(blocking=False):
            self._both.wait(PATIENCE)
        return super().list_effects(*arguments, **options)


@pytest.mark.django_db(transaction=True)
def test_a_pass_whose_process_dies_goes_on_from_its_last_page(transactional_db: None) -> None:
    world = new_world()
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    version = ToolVersion.objects.create(tool=tool, number=2, **{**seed.REFUND, "settle_time": timedelta(0)})
    sink = Stuck()
    for number in range(6):
        sink.add(key=f"{number:040x}")
    run = Rival(lambda: pass_over(version=version, sink=sink))
    run.start()
    assert sink.reached.wait(PATIENCE)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [run.pid])
    sink.may_go.set()
    assert isinstance(run.join().error, OperationalError)
    assert Reconciliation.objects.get().effects == 4

    row = pass_over(version=version, sink=sink)

    assert row is not None
    assert (row.effects, row.opened, sink.pages) == (6, 6, 4)
    assert Reconciliation.objects.count() == 1


class Stuck(Listed):
    """Does not answer for its third page until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.may_go = threading.Event(), threading.Event()

    def list_effects(self, *arguments: Any, **options: Any) -> Page:
        if self.pages == 2:
            self.reached.set()
            assert self.may_go.wait(PATIENCE)
        return super().list_effects(*arguments, **options)
