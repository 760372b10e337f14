"""What the controls did, one row each; counted by source and action, never changed."""

from typing import Any
from uuid import UUID

from ledger.models import ControlEvent
from ledger.states import ControlEventKind


def record(
    *,
    tenant_id: UUID,
    kind: ControlEventKind,
    source: str,
    action: str,
    subject: int | None = None,
    key: str | None = None,
    **detail: Any,
) -> None:
    """Appends one event. For a refusal, call it after the refused transaction has rolled back, or it goes with it."""
    ControlEvent.objects.create(
        tenant_id=tenant_id,
        kind=kind,
        source=source[:120],
        action=action[:50],
        subject=subject,
        key=key,
        detail=detail,
    )


def is_recorded(kind: ControlEventKind, key: str) -> bool:
    """Whether such an event about the operation of this key was recorded before."""
    return ControlEvent.objects.filter(kind=kind, key=key).exists()
