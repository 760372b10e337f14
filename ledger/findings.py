"""Disagreements between ledger and sink, and the guard they put on a subject."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from ledger.models import Finding
from ledger.states import FindingKind


def open_finding(
    *,
    tenant_id: UUID,
    kind: FindingKind,
    about: str,
    subject: int | None,
    order_id: int | None,
    **detail: Any,
) -> bool:
    """Opens a finding unless the same matter is open already; returns whether it is new.

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
                detail=detail,
            )
    except IntegrityError as error:
        if "one_open_finding_per_matter" not in str(error):
            raise
        return False
    return True


def disputed(subjects: Iterable[int]) -> set[int]:
    """Those of the subjects about which a finding is open: neither approved nor claimed until it closes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT subject FROM ledger_finding WHERE subject = ANY(%s) AND closed_at IS NULL",
            [list(subjects)],
        )
        return {subject for (subject,) in cursor.fetchall()}
