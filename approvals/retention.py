"""Removing what cases said, once nobody may need it: the ledger's part first, then the case's (docs/retention.md)."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from django.db import transaction

from accounts.sql import Queries
from approvals.errors import NotFound
from approvals.models import Case, Pruning
from ledger import findings, retention, sweeps

QUERIES = Queries(Path(__file__).with_name("retention.sql"))

NAME = "prune"
BY = "retention"
_BECAUSE = "The time its tool keeps content for is over."
_STRETCH = 5000
"""Case numbers looked at in one statement."""
_TOGETHER = 200
"""Cases emptied in one transaction."""


class NotYet(Exception):
    """This case cannot be emptied now."""


@dataclass(frozen=True, slots=True)
class Removed:
    """That the content of a case is gone: when, by whom, why, and whether somebody asked for it."""

    at: datetime
    by: str
    because: str
    erased: bool


def removed(case: Case) -> Removed | None:
    """Whether the case's present content was removed."""
    return removed_of([case.proposal_id]).get(case.proposal_id)


def removed_of(proposals: Collection[int]) -> dict[int, Removed]:
    """{proposal: that its content was removed}, in one query."""
    rows = Pruning.objects.filter(proposal_id__in=proposals)
    return {row.proposal_id: Removed(row.at, row.by, row.because, row.is_erasure) for row in rows}


def prune_due() -> int:
    """Empties every case that is past its tool's retention; returns how many. Twice at once is harmless."""
    pruned, after = 0, 0
    last = Case.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    while after < last:
        due = [row.id for row in QUERIES.rows("due", after=after, before=after + _STRETCH)]
        for first in range(0, len(due), _TOGETHER):
            pruned += len(_prune(due[first : first + _TOGETHER], by=BY, because=_BECAUSE, erasing=False))
        after += _STRETCH
    pruned += retention.prune_leftovers(most=_STRETCH)
    sweeps.note(NAME, pruned)
    return pruned


def erase(*, tenant_id: UUID, case_id: int, by: str, because: str) -> Removed:
    """Empties one case on request, before its tool's retention but not before its retry horizon.

    ``by`` is the source, e.g. ``person:Adam Demo``. Raises NotFound, and NotYet with what has to come first.
    """
    case = Case.objects.filter(pk=case_id, tenant_id=tenant_id).first()
    if case is None:
        raise NotFound
    if (already := removed(case)) is not None:
        return already
    if not _prune([case_id], by=by, because=because, erasing=True):
        raise NotYet(_obstacle(case))
    gone = removed(case)
    assert gone is not None
    return gone


def _prune(cases: Collection[int], *, by: str, because: str, erasing: bool) -> list[int]:
    """Those of the cases that could be emptied, and now are. A case that somebody is at waits for the next time."""
    with transaction.atomic():
        free = [row.id for row in QUERIES.rows("lock_ended", cases=list(cases))]
        orders = retention.orders_of(free)
        may = retention.prunable([order for its in orders.values() for order in its], erasing=erasing)
        ready = [case for case in free if may.issuperset(orders.get(case, ()))]
        its = [order for case in ready for order in orders.get(case, ())]
        retention.prune(orders=its, by=by, because=because, erasing=erasing)
        going = [row.case_id for row in QUERIES.rows("prunable", cases=ready, erasing=erasing)]
        QUERIES.rows("prune", cases=going, by=by[:120], because=because[:300], erasing=erasing)
    return going


def _obstacle(case: Case) -> str:
    if findings.disputed([case.pk]):
        return "A finding about this case is open. Close it first: what it rests on is needed until then."
    if case.state not in ("executed", "failed", "rejected", "withdrawn", "expired"):
        return f"The case is {case.state}: its content is needed until it has ended."
    return (
        "The action may still be retried: its content is kept until the tool's retry horizon is over, counted from"
        " when its outcome was settled."
    )
