"""`manage.py probe`: tries a tool's sink with test credentials, and says whether its promise holds."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.demo import handles, seed
from config.management.commands.reconcile import chosen
from ledger import guarantees, tools
from ledger.models import Probe
from workers.connectors import UnknownConnector
from workers.connectors.wire import BadSetting
from workers.probes import NoProbe, probe

_MARKS = {True: "holds", False: "FAILS", None: "not tried"}


class Command(BaseCommand):
    """Exits with 0 only if every claim that was tried held."""

    help = (
        "Tries what a tool's enforcement class claims, at the target its version names for probes. It has real effects"
        " there; live credentials are refused. What was seen is stored and shown on the tool's page."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """One tool of one organisation."""
        parser.add_argument("tool", help="its name")
        parser.add_argument("--tenant", help="its id or its name; needed where several have such a tool")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Probes the newest version."""
        found = list(chosen(options["tenant"], options["tool"]))
        if len(found) != 1:
            raise CommandError(f"{len(found)} organisations have this tool; name one with --tenant.")
        version = tools.current_version(tenant_id=found[0].tenant_id, name=found[0].name)
        try:
            seen = probe(version)
        except (NoProbe, BadSetting, UnknownConnector) as error:
            raise CommandError(f"Nothing was sent. {error}{handles.hint(seed.PROBE_TOKEN)}") from error
        self._say(seen)
        self.stdout.write(guarantees.guarantee(version))
        if not seen.passed:
            raise CommandError("The sink does not do what the tool's class claims.")

    def _say(self, seen: Probe) -> None:
        self.stdout.write(f"{seen.tool_version} at {seen.sink}:")
        for each in seen.observations:
            self.stdout.write(f"  {_MARKS[each['holds']]:9} {each['claim']} ({each['seen']})")
