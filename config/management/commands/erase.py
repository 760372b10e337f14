"""`manage.py erase`: removes what one case said, because somebody may ask for that."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals import retention
from approvals.errors import NotFound
from config.management.commands.reconcile import named


class Command(BaseCommand):
    """Before the tool's retention, but never before its retry horizon, nor while the outcome is open."""

    help = "Empties one case on request. Its keys, states and references stay: they keep it from happening again."

    def add_arguments(self, parser: CommandParser) -> None:
        """Who and why are written down for good."""
        parser.add_argument("--tenant", required=True, help="its id or its name")
        parser.add_argument("--case", required=True, type=int, help="its number, as in its address")
        parser.add_argument("--by", required=True, help="who does it, by name")
        parser.add_argument(
            "--because", required=True, help="on whose request, without naming whom it is about"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Says what was done, or what has to come first."""
        try:
            gone = retention.erase(
                tenant_id=named(options["tenant"]).pk,
                case_id=options["case"],
                by=f"person:{options['by']}",
                because=options["because"],
            )
        except NotFound:
            raise CommandError(f"This organisation has no case {options['case']}.") from None
        except retention.NotYet as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"The content of case {options['case']} was removed on {gone.at:%Y-%m-%d %H:%M} UTC."
        )
