"""A backup is taken, the world goes on, the backup is restored: what happened since does not happen again."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from approvals.errors import Refusal
from approvals.models import Case
from config.demo import seed
from config.embedded.postgres import programs
from ledger import halts
from ledger.models import Attempt, Finding, Halt, Operation, Order, Resource, Tool, ToolVersion
from ledger.states import OperationState
from tests.databases import database_url
from tests.real_sinks import LEDGER, REFUND, Sinks, ask, carry_out
from tests.worlds import World, approve, assert_machines_agree, proposed


@dataclass
class Backup:
    """A dump of the database as it is now."""

    file: Path
    at: datetime

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Inside, the product works on what the backup had."""
        name, present = f"restored_{uuid4().hex[:8]}", connection.settings_dict["NAME"]
        with psycopg.connect(database_url("postgres"), autocommit=True) as server:
            server.execute(f'CREATE DATABASE "{name}"')
            # An older server refuses a setting that the newer program makes, and is restored all the same.
            run("pg_restore", "--no-owner", "--dbname", database_url(name), str(self.file), check=False)
            connection.close()
            connection.settings_dict["NAME"] = name
            try:
                yield
            finally:
                connection.close()
                connection.settings_dict["NAME"] = present
                server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def backup(folder: Path) -> Backup:
    at, file = datetime.now(UTC), folder / "backup"
    run(
        "pg_dump", "--format=custom", "--file", str(file), database_url(str(connection.settings_dict["NAME"]))
    )
    return Backup(file, at)


def run(program: str, *arguments: str, check: bool = True) -> None:
    subprocess.run([str(programs() / program), *arguments], check=check, capture_output=True, timeout=60)


def after_restore(**options: Any) -> None:
    call_command("after_restore", **options)


def test_nothing_that_happened_after_the_backup_happens_again(
    world: World, sinks: Sinks, tmp_path: Path
) -> None:
    for action in (REFUND, LEDGER):
        ask(world, sinks, action, f"{action}-executed-before")
    carry_out()
    due = [ask(world, sinks, action, f"{action}-approved-before") for action in (REFUND, LEDGER)]
    open_ones = [
        ask(world, sinks, action, f"{action}-open-before", how=proposed) for action in (REFUND, LEDGER)
    ]
    taken = backup(tmp_path)
    for case in open_ones:
        approve(case, world.reviewer)
    for action in (REFUND, LEDGER):
        ask(world, sinks, action, f"{action}-after")
    carry_out()
    effects, fences = sinks.effects(), sinks.fences()
    assert len(effects) == 8
    assert set(effects.values()) == {1}
    highest = max(Order.objects.values_list("pk", flat=True))

    with taken.restored():
        assert Operation.objects.filter(state=OperationState.COMMITTED).count() == 2
        after_restore(backup_time=taken.at)

        assert [each.began_by for each in halts.open_ones(tenant_id=world.tenant.pk)] == ["restore"]
        assert_tokens_above(world, fences)
        carry_out()
        assert sinks.effects() == effects  # nothing is sent under the halt

        with pytest.raises(CommandError, match="belong to no case"):
            after_restore(release=True, by="Olga Demo")
        lost = Finding.objects.filter(kind="unrecorded", subject=None, closed_at=None)
        assert lost.count() == 2
        for case in open_ones:  # approved after the backup: open again, and disputed
            with pytest.raises(Refusal):
                approve(case, world.reviewer)
        lost.update(closed_at=datetime.now(UTC), closed_by="person:Olga Demo", closed_because="Found out.")
        after_restore(release=True, by="Olga Demo")
        assert Halt.objects.get().ended_by == "person:Olga Demo"

        carry_out()
        assert sinks.effects() == effects
        for case in due:
            assert Case.objects.get(pk=case.pk).state == "executed"

        # Even where somebody closes the finding and approves it once more, and the agent proposes the lost one anew.
        Finding.objects.filter(closed_at=None).update(
            closed_at=datetime.now(UTC), closed_by="person:Olga Demo", closed_because="Let it."
        )
        for case in open_ones:
            approve(Case.objects.get(pk=case.pk), world.reviewer)
        again = [ask(world, sinks, action, f"{action}-after") for action in (REFUND, LEDGER)]
        carry_out()
        assert sinks.effects() == effects
        assert {Case.objects.get(pk=case.pk).state for case in (*open_ones, *again)} == {"executed"}
        assert_machines_agree()
        assert min(Order.objects.filter(subject__in=[each.pk for each in again]).values_list("pk")) > (
            highest,
        )


def assert_tokens_above(world: World, fences: dict[str, int]) -> None:
    prefix = f"{world.tenant.pk}/"
    for name, seen in fences.items():
        assert Resource.objects.get(tenant=world.tenant, name=name.removeprefix(prefix)).token >= seen


def test_a_release_waits_for_the_listing_to_reach_beyond_the_halt(
    world: World, sinks: Sinks, tmp_path: Path
) -> None:
    for tool in Tool.objects.filter(tenant=world.tenant):
        slow = {**seed.REFUND, "settle_time": timedelta(hours=1)}
        ToolVersion.objects.create(tool=tool, number=3, **slow)
    after_restore(backup_time=datetime.now(UTC) - timedelta(hours=3), tenant=str(world.tenant.pk))

    with pytest.raises(CommandError, match="may be behind its effects: try again in 36"):
        after_restore(release=True, tenant=str(world.tenant.pk))
    assert Halt.objects.get().ended_by is None
    assert carry_out() == 0
    assert Attempt.objects.count() == 0


def test_there_is_nothing_to_release_where_nothing_stands_still(world: World) -> None:
    with pytest.raises(CommandError, match="nothing to release"):
        after_restore(release=True, tenant=str(world.tenant.pk))
