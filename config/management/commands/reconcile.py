"""`manage.py reconcile`: holds sinks' own listings against the ledger, now, and says what is open."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import QuerySet

from accounts.models import Tenant
from config.demo import handles, seed
from ledger.models import Reconciliation, Tool
from ledger.reconciliation import Overtaken
from workers import reconciliation
from workers.connectors.answers import SinkAway
from workers.reconciliation import NotListed

_MOMENT = "%Y-%m-%d %H:%M:%S"


class Command(BaseCommand):
    """Exits with 0 only if every sink was asked and nothing that was found waits for a person."""

    help = (
        "Compares the sinks' own listings with the ledger. Exits with 1 where a sink could not be listed,"
        " or a finding is open that asks for a person (neither muted nor foreign)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """All tools of all organisations, unless said otherwise."""
        parser.add_argument("--tenant", help="its id or its name")
        parser.add_argument("--tool", help="its name")
        parser.add_argument(
            "--since", type=moment, help="look back so far at least: 2026-11-30 or 2026-11-30T08:00Z"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Makes one pass over each tool, then says what is open."""
        tools = list(chosen(options["tenant"], options["tool"]))
        away = [tool for tool in tools if not self._pass(tool, options["since"])]
        asking = sum(self._say_open(tool) for tool in tools)
        if away:
            raise CommandError(
                f"Could not be listed now: {', '.join(tool.name for tool in away)}. Why stands above; run it again"
                f" when that is seen to.{handles.hint(seed.TOKEN)}"
            )
        if asking:
            raise CommandError(f"{asking} findings wait for a person: Reconcile in the console.")
        self.stdout.write("Ledger and sinks agree, as far as the sinks were compared.")

    def _pass(self, tool: Tool, since: datetime | None) -> bool:
        """Whether the tool's sink answered, or cannot be asked at all."""
        try:
            row = reconciliation.reconcile(tool=tool, since=since)
        except NotListed:
            self.stdout.write(f"{_name(tool)}: its sink cannot list its effects; nothing to compare.")
        except Overtaken:
            self.stdout.write(f"{_name(tool)}: another run is making this pass.")
        except SinkAway as error:
            self.stderr.write(f"{_name(tool)}: {error}")
            return False
        else:
            self.stdout.write(f"{_name(tool)}: {said(row)}")
        return True

    def _say_open(self, tool: Tool) -> int:
        (still,) = reconciliation.still_open([tool])
        for kind, count in sorted(still.kinds.items()):
            self.stdout.write(f"  {_name(tool)}: {count} {kind}")
        return still.asking


def chosen(tenant: str | None, tool: str | None) -> QuerySet[Tool]:
    """The tools that are meant. Raises CommandError where there is none."""
    tools = Tool.objects.select_related("tenant").order_by("tenant_id", "name")
    if tenant is not None:
        tools = tools.filter(tenant=named(tenant))
    if tool is not None:
        tools = tools.filter(name=tool)
    if not tools.exists():
        raise CommandError("There is no such tool. Check --tenant and --tool.")
    return tools


def named(tenant: str) -> Tenant:
    """The organisation of this id or name. Raises CommandError where it is not one."""
    found = [each for each in Tenant.objects.all() if tenant in (str(each.pk), each.name)]
    if len(found) != 1:
        raise CommandError(f"{len(found)} organisations are called {tenant!r}; give the id of one.")
    return found[0]


def moment(text: str) -> datetime:
    """A date or a time of day with its offset; without one it is UTC. Raises ValueError."""
    read = datetime.fromisoformat(text)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def said(row: Reconciliation | None) -> str:
    if row is None:
        return "nothing is old enough to be compared yet."
    return (
        f"compared {row.since:{_MOMENT}} to {row.until:{_MOMENT}} UTC (later may not be listed yet):"
        f" {row.effects} effects at the sink, {row.operations} operations in the ledger,"
        f" {row.opened} new findings, {row.closed} closed."
    )


def _name(tool: Tool) -> str:
    return f"{tool.tenant.name} / {tool.name}"
