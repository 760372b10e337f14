"""After a backup was restored the ledger has gone backwards: nothing is sent until it has caught up with the sinks.

Everything stands still; each sink's listing is held against the ledger from the backup's time; tokens rise above what
the sinks have seen; then a person lets it go on (docs/restore.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from accounts.models import Tenant
from approvals import execution, restored
from ledger import clock, halts, resources
from ledger import reconciliation as reconciliation_rows
from ledger.models import Finding, Halt, Tool
from ledger.reconciliation import Overtaken
from ledger.states import FindingKind
from ledger.tools import UnknownTool, current_version
from workers import reconciliation
from workers.connectors import UnknownConnector, connector
from workers.connectors.answers import SinkAway
from workers.reconciliation import NotListed

BY = "restore"
_REASON = "A backup was restored. Nothing is sent until the ledger has caught up with the sinks."
_SKIPPED = 10_000
"""Tokens and order numbers left out: far more than can have been given between a backup and its restore."""
_FENCES = 1000
_MARGIN = timedelta(minutes=10)
"""What was under way when the backup was taken may have begun so much earlier."""


@runtime_checkable
class Fenced(Protocol):
    """A sink that remembers the highest token of every resource, and can be asked for them."""

    def fences(
        self, sink_settings: Mapping[str, object], *, after: str, most: int, timeout: float
    ) -> Sequence[tuple[str, int]]:
        """(resource as the sink knows it, token), in the order of names after ``after``. Raises SinkAway."""


class NotCaughtUp(Exception):
    """The ledger is not known to have caught up with the sinks; nothing was released."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """What was done for one tenant. ``unlisted``: tools whose sink nobody but a person can look through."""

    tenant: Tenant
    raised: int
    unlisted: list[str]
    away: list[str]
    unrecorded: int


def halt_all(tenants: Sequence[Tenant]) -> None:
    """Stops every send of these tenants; the first thing to do on a restored database, before any worker starts."""
    for tenant in tenants:
        halts.begin(tenant_id=tenant.pk, tool_id=None, by=BY, reason=_REASON)


def skip_numbers() -> None:
    """No number of a case or an order that was given since the backup is given to another one."""
    resources.skip_order_numbers(by=_SKIPPED)
    restored.skip_case_numbers(by=_SKIPPED)


def catch_up(tenant: Tenant, *, backup_time: datetime) -> CaughtUp:
    """Holds each sink of the tenant against the ledger and raises its tokens. May be repeated; it halts first."""
    halt_all([tenant])
    raised = 0
    unlisted: list[str] = []
    away: list[str] = []
    for tool in tenant.tools.order_by("name"):
        try:
            raised += raise_tokens(tool)
            reconciliation.reconcile(tool=tool, since=backup_time - _MARGIN)
        except NotListed:
            unlisted.append(tool.name)
        except (SinkAway, Overtaken):
            away.append(tool.name)
    resources.skip_tokens(tenant_id=tenant.pk, by=_SKIPPED)
    attach_to_cases(tenant)
    return CaughtUp(tenant, raised, unlisted, away, _unrecorded(tenant).count())


def raise_tokens(tool: Tool) -> int:
    """Raises the tool's resources above what its sink has seen; 0 where the sink has no fences. Raises SinkAway."""
    try:
        version = current_version(tenant_id=tool.tenant_id, name=tool.name)
        sink = connector(version.connector)
    except (UnknownTool, UnknownConnector):
        return 0
    if not isinstance(sink, Fenced):
        return 0
    return sum(
        resources.raise_tokens(tenant_id=tool.tenant_id, seen=_of(tool.tenant_id, page))
        for page in _fences(sink, version.sink_settings)
    )


def _fences(sink: Fenced, sink_settings: Mapping[str, object]) -> Iterator[Sequence[tuple[str, int]]]:
    after = ""
    while page := sink.fences(
        sink_settings, after=after, most=_FENCES, timeout=settings.EXECUTION.call_timeout
    ):
        yield page
        after = page[-1][0]


def _of(tenant_id: UUID, page: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Of a sink that tenants share, the tenant's own resources, by the names the ledger has for them."""
    prefix = f"{tenant_id}/"
    return {name.removeprefix(prefix): token for name, token in page if name.startswith(prefix)}


def attach_to_cases(tenant: Tenant) -> int:
    """Ties effects that nobody recorded to the cases they must be of, so that these are not approved once more.

    A case that was approved after the backup is open again; the key of that approval can be computed from it.
    """
    lost = {each.detail.get("key"): each for each in _unrecorded(tenant).filter(subject=None)}
    attached = 0
    for subject, keys in restored.keys_to_come(tenant_id=tenant.pk) if lost else ():
        for key in lost.keys() & keys:
            with transaction.atomic():
                execution.lock_case(subject)
                attached += reconciliation_rows.attach(finding_id=lost[key].pk, subject=subject)
    return attached


def _unrecorded(tenant: Tenant) -> QuerySet[Finding]:
    return Finding.objects.filter(tenant=tenant, kind=FindingKind.UNRECORDED, closed_at=None)


def release(tenant: Tenant, *, by: str) -> None:
    """Ends the tenant's halt, once a whole pass over every sink that can list has reached beyond its beginning.

    Raises NotCaughtUp, with what is missing.
    """
    halt = halts.open_ones(tenant_id=tenant.pk).filter(tool=None).first()
    if halt is None:
        raise NotCaughtUp(f"{tenant.name} is not halted; there is nothing to release.")
    if halt.began_by != BY:
        raise NotCaughtUp(
            f"{tenant.name} was halted by {halt.began_by} before: who halted it ends that in the console."
        )
    for tool in tenant.tools.order_by("name"):
        _require_pass(tool, halt)
    attach_to_cases(tenant)
    if lost := _unrecorded(tenant).filter(subject=None).count():
        raise NotCaughtUp(
            f"{lost} effects at {tenant.name}'s sinks belong to no case. Find out what each is, and close its finding:"
            " the action could be proposed anew and happen a second time."
        )
    halts.end(tenant_id=tenant.pk, tool_id=None, by=by)


def _require_pass(tool: Tool, halt: Halt) -> None:
    """A whole pass has to reach beyond the halt's beginning: nothing was sent after it."""
    try:
        reconciliation.reconcile(tool=tool)
    except NotListed:
        return
    except (SinkAway, Overtaken) as away:
        raise NotCaughtUp(f"The pass over {tool.name} was not finished: {away} Try again.") from away
    passed = tool.reconciliations.filter(ended_at__isnull=False, error="", until__gte=halt.began_at)
    if not passed.exists():
        version = current_version(tenant_id=tool.tenant_id, name=tool.name)
        left = halt.began_at + reconciliation.lag_of(version).youngest - clock.now()
        raise NotCaughtUp(
            f"The listing of {tool.name} may be behind its effects: try again in {left.total_seconds() + 1:.0f} s."
        )
