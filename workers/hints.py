"""What a queue message says, held against the ledger: repeats and contradictions are counted, nothing is believed."""

import logging
import re
from collections.abc import Sequence

from ledger import control_events
from ledger.models import Operation
from ledger.states import ControlEventKind, OperationState

log = logging.getLogger(__name__)

_KEY = re.compile(r"[0-9a-f]{40}", re.ASCII)
_MOST = 500  # hints looked at per message; a flood of forged ones costs no more


def observe(hints: object, *, worker: str) -> None:
    """Counts hints that meet a started or settled operation as replays, those with another content as conflicts.

    Anything malformed or unknown is passed over: due work is found without it.
    """
    wanted = dict(_well_formed(hints))
    operations = Operation.objects.filter(order__key__in=list(wanted)).select_related("order", "tool")
    for operation in operations:
        order = operation.order
        if wanted[order.key] != order.fingerprint:
            kind = ControlEventKind.FINGERPRINT_CONFLICT
        elif operation.state != OperationState.NOT_STARTED:
            kind = ControlEventKind.REPLAY
        else:
            continue
        control_events.record(
            tenant_id=order.tenant_id,
            kind=kind,
            source=f"queue:{worker}",
            action=operation.tool.name,
            subject=order.subject,
            key=order.key,
            found=operation.state,
            held_by=operation.worker,
        )


def _well_formed(hints: object) -> list[tuple[str, str]]:
    if not isinstance(hints, Sequence) or isinstance(hints, str):
        log.warning("a doorbell message carries no list of hints; it is passed over")
        return []
    return [
        (str(hint["key"]), str(hint.get("fingerprint", "")))
        for hint in hints[:_MOST]
        if isinstance(hint, dict) and isinstance(hint.get("key"), str) and _KEY.fullmatch(hint["key"])
    ]
