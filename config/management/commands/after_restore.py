"""`manage.py after_restore`: what a restored database needs before anything is sent (docs/restore.md)."""

from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import Tenant
from config.management.commands.reconcile import moment, named
from workers import restore
from workers.restore import CaughtUp, NotCaughtUp


class Command(BaseCommand):
    """Halts, compares and raises tokens; with ``--release`` ends the halt once all of that is done."""

    help = (
        "Run it on a restored database before any worker starts; then look at what it found; then --release."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """The backup's time, or the release."""
        parser.add_argument("--tenant", help="only this one: its id or its name")
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--backup-time", type=moment, help="when the backup was begun: 2026-11-30T02:00Z")
        what.add_argument("--release", action="store_true", help="let it go on")
        parser.add_argument("--by", default="restore", help="who releases it, by name")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Every organisation is halted first, so that none waits for another's sinks."""
        tenants = [named(options["tenant"])] if options["tenant"] else list(Tenant.objects.order_by("name"))
        if options["release"]:
            self._release(tenants, options["by"])
        else:
            self._catch_up(tenants, options["backup_time"])

    def _catch_up(self, tenants: list[Tenant], backup_time: datetime) -> None:
        restore.halt_all(tenants)
        restore.skip_numbers()
        done = [restore.catch_up(tenant, backup_time=backup_time) for tenant in tenants]
        for each in done:
            self._say(each)
        if any(each.away for each in done):
            raise CommandError("A sink did not answer. Everything stands still; run this command again.")
        self.stdout.write("Everything stands still. See to what was found, then run after_restore --release.")

    def _say(self, done: CaughtUp) -> None:
        say, name = self.stdout.write, done.tenant.name
        say(f"{name}: {done.raised} tokens raised, {done.unrecorded} effects that the ledger does not know.")
        if done.unlisted:
            say(f"{name}: nobody but you can look through the sinks of {', '.join(done.unlisted)}.")
        if done.away:
            say(f"{name}: no answer from the sinks of {', '.join(done.away)}.")

    def _release(self, tenants: list[Tenant], by: str) -> None:
        held = []
        for tenant in tenants:
            try:
                restore.release(tenant, by=f"person:{by}")
                self.stdout.write(f"{tenant.name} goes on.")
            except NotCaughtUp as error:
                held.append(str(error))
        if held:
            raise CommandError("\n".join(held))
