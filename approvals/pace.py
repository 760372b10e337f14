"""How people decide: how much, how fast, and how often too fast to have read what they approved."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from accounts.models import Member
from accounts.sql import Queries
from approvals.states import Verdict

QUERIES = Queries(Path(__file__).with_name("pace.sql"))

DECIDING = (Verdict.APPROVE, Verdict.REJECT, Verdict.REQUEST_CHANGES)
HASTY = 5.0
"""Seconds in which nobody reads an amount, a payee and a reason."""
EDGES = (5.0, 30.0, 120.0, 300.0, 900.0)
"""Seconds between which the time to decide is spread."""
_LAST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Pace:
    """What was decided in a range of time. ``spread`` counts by ``EDGES``, one more than there are edges."""

    decisions: int
    approvals: int
    hasty: int
    median: timedelta | None
    most: timedelta | None
    spread: Sequence[int]


def pace(*, tenant_id: UUID, since: datetime, until: datetime) -> Pace:
    """Counts the tenant's decisions: approvals, rejections and requests for changes."""
    told = _told(tenant_id, since, until)
    rows = QUERIES.rows("spread", edges=list(EDGES), below=HASTY, **told)
    half, most = QUERIES.rows("percentiles", **told)[0]
    approvals = [row for row in rows if row.verdict == Verdict.APPROVE]
    return Pace(
        decisions=sum(row.n for row in rows),
        approvals=sum(row.n for row in approvals),
        hasty=sum(row.hasty for row in approvals),
        median=None if half is None else timedelta(seconds=half),
        most=None if most is None else timedelta(seconds=most),
        spread=[sum(row.n for row in rows if row.bin == bin_) for bin_ in range(len(EDGES) + 1)],
    )


def decisions(
    *, tenant_id: UUID, since: datetime, until: datetime, hasty: bool, before: int | None, most: int
) -> list[Any]:
    """The decisions themselves, the newest first; ``hasty``: only approvals too fast to have been read."""
    return QUERIES.rows(
        "decisions",
        before=before or _LAST,
        below=HASTY if hasty else None,
        most=most,
        **_told(tenant_id, since, until),
    )


def _told(tenant_id: UUID, since: datetime, until: datetime) -> dict[str, Any]:
    members = Member.objects.filter(tenant_id=tenant_id).values_list("pk", flat=True)
    return {
        "members": list(members),
        "since": since,
        "until": until,
        "verdicts": [each.value for each in DECIDING],
    }
