"""Halting a tenant, pausing a tool: nothing is sent from the moment it has committed until it ends.

A claim holds its tenants shared, a halt takes its tenant alone: it waits for the claims that are open and none commits
after it. Calls on the wire finish; look-ups and fences go on (docs/protocol.md, Halt).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from ledger import clock
from ledger.models import Halt
from ledger.picks import QUERIES

_LOCKS = 0x48414C54
"""Names our advisory locks among others' in the database; each is held until its transaction ends."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """Which of some tenants and tools stand still, with the reason that people are shown."""

    tenants: dict[UUID, str]
    tools: dict[int, str]

    def reason(self, *, tenant_id: UUID, tool_id: int) -> str | None:
        """Why nothing of this tool may be sent now, or None."""
        return self.tenants.get(tenant_id) or self.tools.get(tool_id)


def begin(
    *, tenant_id: UUID, tool_id: int | None, by: str, reason: str, ends_in: timedelta | None = None
) -> Halt:
    """Halts the tenant, or pauses the tool; one that is halted already stays as it is, and is returned.

    ``by`` is the source, e.g. ``person:Olga Demo`` or ``breaker``. With ``ends_in`` it ends by itself.
    Once this has committed nothing is sent. Waits for claims that are open.
    """
    with transaction.atomic():
        _hold(tenant_id)
        if (already := _open(tenant_id, tool_id).first()) is not None:
            return already
        now = clock.now()
        return Halt.objects.create(
            tenant_id=tenant_id,
            tool_id=tool_id,
            reason=reason[:300],
            began_at=now,
            began_by=by[:120],
            ends_at=now + ends_in if ends_in is not None else None,
        )


def end(*, tenant_id: UUID, tool_id: int | None, by: str) -> bool:
    """Ends the tenant's halt, or the tool's pause; returns whether there was one."""
    with transaction.atomic():
        _hold(tenant_id)
        ended = _open(tenant_id, tool_id).update(ends_at=Now(), ended_by=by[:120])
    return ended > 0


def open_ones(*, tenant_id: UUID) -> QuerySet[Halt]:
    """The tenant's halts and pauses that are in force now."""
    return Halt.objects.filter(Q(ends_at=None) | Q(ends_at__gt=Now()), tenant_id=tenant_id).order_by(
        "began_at"
    )


def is_paused(*, tenant_id: UUID, tool_id: int) -> bool:
    """Whether a pause of this tool is in force now, whoever began it."""
    return _open(tenant_id, tool_id).exists()


def _open(tenant_id: UUID, tool_id: int | None) -> QuerySet[Halt]:
    its = Q(tool__isnull=True) if tool_id is None else Q(tool_id=tool_id)
    return open_ones(tenant_id=tenant_id).filter(its)


def standstill(tenant_ids: Iterable[UUID]) -> Standstill:
    """What stands still of these tenants. In a claim, ask after ``hold_shared``."""
    rows = QUERIES.rows("halts_in_force", tenants=list(tenant_ids))
    return Standstill(
        tenants={row.tenant_id: row.reason for row in rows if row.tool_id is None},
        tools={row.tool_id: row.reason for row in rows if row.tool_id is not None},
    )


def hold_shared(tenant_ids: Collection[UUID]) -> set[UUID]:
    """Those of the tenants that nobody is halting at this moment, held so until the transaction ends."""
    rows = QUERIES.rows("hold_tenants", tenants=sorted(tenant_ids), locks=_LOCKS)
    return {row.tenant_id for row in rows if row.held}


def _hold(tenant_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s::text))", [_LOCKS, str(tenant_id)])


def extension(*, tenant_id: UUID, tool_id: int, since: datetime) -> timedelta:
    """How long the tenant or the tool has stood still since then: so much longer are its deadlines."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT halted_time(%s, %s, %s, clock_timestamp())", [tenant_id, tool_id, since])
        halted: timedelta = cursor.fetchone()[0]
    return halted
