"""Disagreements between ledger and sink, and the guard they put on a subject."""

from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from ledger.models import Finding
from ledger.picks import QUERIES
from ledger.states import FindingKind


def open_finding(
    *,
    tenant_id: UUID,
    kind: FindingKind,
    about: str,
    subject: int | None,
    order_id: int | None,
    tool_id: int | None = None,
    reference: str | None = None,
    amount_minor: int | None = None,
    currency: str | None = None,
    **detail: Any,
) -> bool:
    """Opens a finding unless the same matter is open already, which is then seen anew; returns whether it is new.

    The caller holds the lock on the subject's case, so that an approval counts either before or after it.
    """
    try:
        with transaction.atomic():
            Finding.objects.create(
                tenant_id=tenant_id,
                kind=kind,
                about=about,
                subject=subject,
                operation_id=order_id,
                tool_id=tool_id,
                reference=reference,
                amount_minor=amount_minor,
                currency=currency,
                detail=detail,
            )
    except IntegrityError as error:
        if "one_open_finding_per_matter" not in str(error):
            raise
        same = Finding.objects.filter(tenant_id=tenant_id, kind=kind, about=about, closed_at=None)
        same.update(seen_at=Now())
        return False
    return True


def close(*, finding_ids: Collection[int], by: str, because: str) -> int:
    """Closes those of the findings that are open, and makes what they kept back due at once; returns how many.

    ``by`` is the source, e.g. ``person:Olga Demo`` or ``reconciliation``; ``because`` says what settled it.
    """
    closed = QUERIES.rows("close_findings", findings=list(finding_ids), by=by[:120], because=because[:500])
    QUERIES.rows("make_subjects_due", subjects=[row.subject for row in closed if row.subject is not None])
    return len(closed)


def mute(*, finding_id: int) -> bool:
    """Asks nobody about an effect that was never ours any more; it stays open. Returns whether it was such a one."""
    foreign = Finding.objects.filter(pk=finding_id, kind=FindingKind.FOREIGN, closed_at=None, muted_at=None)
    return foreign.update(muted_at=Now()) == 1


def disputed(subjects: Iterable[int]) -> set[int]:
    """Those of the subjects about which a finding is open: neither approved nor claimed until it closes."""
    return {row.subject for row in QUERIES.rows("disputed_subjects", subjects=list(subjects))}
