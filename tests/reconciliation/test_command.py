"""`manage.py reconcile`, and what the clock asks for."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from config.demo import seed
from config.management.commands.reconcile import said
from ledger.models import Finding, Reconciliation, Sweep, Tool
from ledger.states import FindingKind
from tests.worlds import World
from workers import reconciliation

UNLISTED: dict[str, Any] = {
    **seed.REFUND,
    "connector": "http_action",
    "sink_settings": {"url": "http://127.0.0.1:9/", "look_up": {"url": "http://127.0.0.1:9/?key={key}"}},
}


@pytest.fixture
def tool(world: World) -> Tool:
    return seed.tool(world.tenant, "letter", UNLISTED).tool


def run(world: World, **options: Any) -> None:
    call_command("reconcile", tenant=world.tenant.name, tool="letter", **options)


def find(tool: Tool, kind: FindingKind, **state: Any) -> None:
    Finding.objects.create(tenant=tool.tenant, tool=tool, kind=kind, about=str(kind), **state)


def test_it_says_what_cannot_be_compared_and_that_nothing_is_open(
    world: World, tool: Tool, capsys: pytest.CaptureFixture[str]
) -> None:
    run(world)

    printed = capsys.readouterr().out
    assert "cannot list its effects" in printed
    assert "as far as the sinks were compared" in printed


def test_it_says_up_to_when_it_compared() -> None:
    row = Reconciliation(
        since=datetime(2026, 11, 30, 8, tzinfo=UTC), until=datetime(2026, 11, 30, 9, 0, 5, tzinfo=UTC)
    )
    assert "2026-11-30 08:00:00 to 2026-11-30 09:00:05 UTC (later may not be listed yet)" in said(row)


def test_it_fails_while_something_waits_for_a_person(
    world: World, tool: Tool, capsys: pytest.CaptureFixture[str]
) -> None:
    find(tool, FindingKind.TWICE)
    with pytest.raises(CommandError, match="1 findings wait for a person"):
        run(world)
    assert "1 twice" in capsys.readouterr().out


def test_what_is_foreign_or_muted_asks_nobody(
    world: World, tool: Tool, capsys: pytest.CaptureFixture[str]
) -> None:
    find(tool, FindingKind.FOREIGN)
    find(tool, FindingKind.MISSING, muted_at=datetime.now(UTC))
    run(world)
    assert "1 foreign" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{"tenant": "nobody"}, {"tool": "no such tool"}])
def test_a_name_that_is_not_there_is_said(world: World, options: dict[str, str]) -> None:
    with pytest.raises(CommandError):
        call_command("reconcile", **options)


def test_a_moment_without_an_offset_is_utc(world: World, tool: Tool) -> None:
    call_command("reconcile", "--tenant", str(world.tenant.pk), "--tool", "letter", "--since", "2026-11-30")
    with pytest.raises(CommandError, match="invalid moment value"):
        call_command("reconcile", "--since", "yesterday")


def test_the_clock_s_run_leaves_its_mark(world: World, tool: Tool) -> None:
    reconciliation.run_due()
    assert Sweep.objects.get(name="reconcile").found == 0
