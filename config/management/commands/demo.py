"""`manage.py demo`: everything on one machine, the worked example, then the console until Ctrl-C."""

import shlex
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from accounts.models import Member, Tenant
from config.demo import handles, samples, seed, services
from config.demo.example import DidNotHold, Example, pid_from
from config.embedded.errors import EmbeddedServiceError


class Command(BaseCommand):
    """Starts the demo; what it makes stays in VAR_DIR until `make reset`."""

    help = "Starts database, sandbox provider, web, two workers and beat, plays the worked example, serves the console."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Serves until Ctrl-C, then leaves no process behind."""
        try:
            with services.running() as supervisor:
                found = self._handles()
                _invite(found, self._play())
                self._welcome(found)
                try:
                    supervisor.watch()
                finally:
                    self.stdout.write("Stopping…")
        except EmbeddedServiceError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            "The demo has stopped. `make demo` goes on where it was; `make reset` forgets it all."
        )

    def _handles(self) -> dict[str, Any]:
        found = handles.read()
        if found is None:
            found = handles.of(*_organisations())
        handles.write({**found, "base_url": settings.BASE_URL, "sandbox_url": settings.SANDBOX_URL})
        handles.write_environment(services.for_commands())
        return found

    def _play(self) -> Tenant:
        self.stdout.write("The worked example:\n")
        example = Example(say=self.stdout.write, pid_of=pid_from(settings.VAR_DIR))
        try:
            effects = example.run()
        except DidNotHold as failure:
            raise CommandError(str(failure)) from failure
        self.stdout.write(f"effects at the sink: {effects}\n")
        return example.organisation.tenant

    def _welcome(self, found: dict[str, Any]) -> None:
        self.stdout.write(f"\nThe console: {settings.BASE_URL}\nSign in as one of the demo's people:")
        for handle, user in found["users"].items():
            self.stdout.write(f"  {handle.replace('_', ' '):16} {user['username']}   {user['password']}")
        self.stdout.write(
            "The worked example is in an organisation of its own: change to it under your name."
        )
        self.stdout.write(
            f"For `manage.py` in another terminal, first: . {shlex.quote(str(handles.environment_path()))}"
        )
        self.stdout.write(f"Keys and addresses for scripts: {handles.path()}\nCtrl-C stops everything.")
        self.stdout.flush()


def _invite(found: dict[str, Any], tenant: Tenant) -> None:
    """Lets the demo's people look at the example in the console: they are members of its organisation too."""
    emails = [user["username"] for user in found["users"].values()]
    for home in Member.objects.filter(user__email__in=emails, tenant_id=found["tenant"]):
        Member.objects.create(tenant=tenant, user=home.user, roles=home.roles)


def _organisations() -> tuple[seed.Organisation, seed.Organisation]:
    first = seed.organisation("Halden Retail (demo)", label="halden")
    seed.tool(first.tenant, "refund_high", seed.REFUND_HIGH, tier=3, approvals_required=2)
    samples.add(first)
    return first, seed.organisation("Norrland Papper (demo)", label="norrland")
