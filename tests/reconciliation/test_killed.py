"""A pass whose process is killed in the middle: the next one takes it up, and nothing is lost or found twice."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection

from ledger.models import Attempt, Finding, Operation, Reconciliation, Tool
from tests.crashes.conftest import own_database, own_ledger, sandbox_url
from tests.crashes.stage import REPOSITORY, OwnLedger
from tests.databases import database_url
from tests.real_sinks import LEDGER, Sinks, ask, carry_out, sinks, world
from tests.worlds import World, operation, triggers_off
from workers.connectors import owned_ledger as connector
from workers.reconciliation import reconcile

__all__ = ["own_database", "own_ledger", "sandbox_url", "sinks", "world"]

PATIENCE = 20.0
"""Seconds."""
STRANGERS = connector._PAGE + 100
"""Effects under keys that nobody knows: a finding each, on two pages."""


def test_a_pass_that_was_killed_between_two_pages_is_taken_up_where_it_was(
    world: World, sinks: Sinks, own_ledger: OwnLedger, tmp_path: Path
) -> None:
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    lost = operation(happened_and_gone(world, sinks, hour_ago))
    with psycopg.connect(sinks.own) as own:
        own.execute(STRANGE, {"began": hour_ago, "many": STRANGERS})
        last_of_page = own.execute(LAST_OF_PAGE, [connector._PAGE - 1]).fetchone()
    assert last_of_page is not None

    held = own_ledger.gate.hold("request", str(last_of_page[0]).encode())  # the second page is asked for
    process = reconciling(world, own_ledger, tmp_path, since=hour_ago - timedelta(minutes=5))
    assert held.reached.wait(PATIENCE), process.communicate(timeout=PATIENCE)
    process.kill()
    process.communicate()
    held.dropped = True
    held.released.set()

    cut = Reconciliation.objects.get()
    assert (cut.ended_at, cut.effects, cut.opened) == (None, connector._PAGE, connector._PAGE)
    assert Finding.objects.count() == connector._PAGE

    tool = Tool.objects.get(tenant=world.tenant, name=LEDGER)
    taken_up = reconcile(tool=tool)
    assert taken_up is not None
    assert (taken_up.pk, taken_up.ended_at is not None, taken_up.error) == (cut.pk, True, "")
    assert (taken_up.effects, taken_up.opened) == (STRANGERS, STRANGERS + 1)
    missing = Finding.objects.get(kind="missing")
    assert missing.operation_id == lost.pk
    found = Finding.objects.filter(kind="unrecorded", closed_at=None)
    assert found.count() == found.values("about").distinct().count() == STRANGERS

    again = reconcile(tool=tool, since=hour_ago - timedelta(minutes=5))
    assert again is not None
    assert (again.effects, again.opened, again.closed) == (STRANGERS, 0, 0)


STRANGE = """
INSERT INTO countersign.effect (key, fingerprint, resource, token, reference, happened_at)
SELECT encode(sha256(n::text::bytea), 'hex'), 'f', 'r' || n, 1, 'refund-x' || n, %(began)s + n * interval '1 second'
FROM generate_series(1, %(many)s) n
"""
LAST_OF_PAGE = "SELECT key FROM countersign.effect ORDER BY happened_at, key OFFSET %s LIMIT 1"


def happened_and_gone(world: World, sinks: Sinks, at: datetime) -> Any:
    """A case whose effect the ledger has from an hour ago, and the sink no more."""
    case = ask(world, sinks, LEDGER, "gone")
    carry_out()
    with psycopg.connect(sinks.own) as own:
        own.execute("DELETE FROM countersign.effect")
    with triggers_off():
        Attempt.objects.update(started_at=at, ended_at=at)
        Operation.objects.update(settled_at=at)
    return case


def reconciling(world: World, sink: OwnLedger, folder: Path, *, since: datetime) -> "subprocess.Popen[bytes]":
    """`manage.py reconcile` in a process of its own, on the test database, its sink behind the gate."""
    environment = {
        **os.environ,
        **sink.environment(gated=True),
        "DATABASE_URL": database_url(connection.settings_dict["NAME"]),
        "VAR_DIR": str(folder),
        "COUNTERSIGN_CALL_TIMEOUT": str(PATIENCE),
    }
    command = ["reconcile", "--tenant", world.tenant.name, "--tool", LEDGER, "--since", since.isoformat()]
    return subprocess.Popen(
        [sys.executable, "manage.py", *command],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
