"""Grants: under which fencing token a picked operation goes on, for how long, and what may be done under it.

``picks`` locks and says what is due, the approving side has its say, and what may go on is granted here. All of it
runs in the caller's transaction (docs/protocol.md, Claim).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger.picks import QUERIES, Picked
from ledger.states import EnforcementClass, OperationState


@dataclass(frozen=True, slots=True)
class Grant:
    """One attempt: the frozen request, the token it carries, and what may be done under it. Times in seconds.

    ``since_sent`` counts from the grant of the latest attempt that may have been sent; ``earlier_keys`` are those of
    older operations of the same action, which failed: their effects are looked for before this one is first sent.
    ``sink_version`` is what the proposal expects the sink's own record to be at, for its If-Match. ``lapsed``: the
    approval no longer stands, and that is why nothing may be sent; not a halt, nor a finding, which both end.
    """

    order_id: int
    tenant_id: UUID
    key: str
    fingerprint: str
    subject: int
    body: str
    tool: str
    connector: str
    enforcement: EnforcementClass
    resource: str
    number: int
    token: int
    state: OperationState
    maybe_sent: bool
    may_send: bool
    key_window_left: float | None
    answer_stored: bool
    in_progress_count: int
    sink_settings: Mapping[str, Any]
    settle_time: float
    since_sent: float | None
    tool_id: int = 0
    earlier_keys: tuple[str, ...] = ()
    sink_version: str | None = None
    lapsed: bool = False


class GrantLive(Exception):
    """A worker holds this operation at this moment. Wait for its lease to end, or for what it records."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


def grant(
    picked: Sequence[Picked],
    *,
    worker: str,
    lease: float,
    standing: Collection[int],
    lapsed: Collection[int] = (),
) -> list[Grant]:
    """Gives each picked operation a fresh token, a lease of so many seconds and an attempt.

    ``standing`` names the orders that may be sent, ``lapsed`` those whose approval no longer stands.
    """
    if not picked:
        return []
    orders, resources = [each.order_id for each in picked], [each.resource_id for each in picked]
    if any(each.attempts for each in picked):
        QUERIES.rows("close_superseded_attempts", orders=orders)
    rows = QUERIES.rows("grant_operations", orders=orders, resources=resources, worker=worker, lease=lease)
    granted = {row.order_id: row for row in rows}
    if granted.keys() != set(orders):
        raise RuntimeError(f"{len(orders)} operations were locked for a grant, {len(granted)} were granted.")
    return [
        _grant(each, granted[each.order_id], each.order_id in standing, each.order_id in lapsed)
        for each in picked
    ]


def _grant(picked: Picked, row: Any, standing: bool, lapsed: bool) -> Grant:
    version, history = picked.version, picked.history
    return Grant(
        order_id=picked.order_id,
        tenant_id=picked.tenant_id,
        tool_id=picked.tool_id,
        key=picked.key,
        fingerprint=picked.fingerprint,
        subject=picked.subject,
        body=picked.body,
        tool=picked.tool,
        connector=version.connector,
        enforcement=EnforcementClass(version.enforcement),
        resource=picked.resource,
        number=row.number,
        token=row.token,
        state=OperationState.STARTED if picked.state == OperationState.NOT_STARTED else picked.state,
        maybe_sent=history.maybe_sent,
        may_send=standing,
        key_window_left=_window_left(picked),
        answer_stored=history.answer_stored,
        in_progress_count=history.in_progress,
        sink_settings=version.sink_settings,
        settle_time=version.settle_time.total_seconds(),
        since_sent=history.last_sent,
        earlier_keys=picked.earlier_keys,
        sink_version=picked.sink_version,
        lapsed=lapsed,
    )


def _window_left(picked: Picked) -> float | None:
    """Counted from the first attempt that may have been sent; that is this one, if none was."""
    window = picked.version.key_window
    return None if window is None else window.total_seconds() - (picked.history.first_sent or 0.0)


def end(reasons: Mapping[int, str]) -> None:
    """Settles picked operations as failed before commit: {order id: why}. None of them was ever sent."""
    if not reasons:
        return
    orders = list(reasons)
    ended = QUERIES.rows("end_operations", orders=orders, reasons=list(reasons.values()))
    if len(ended) != len(orders):
        raise RuntimeError(f"{len(orders)} operations were to be ended, {len(ended)} were.")
    QUERIES.rows("close_superseded_attempts", orders=orders)
    QUERIES.rows("free_resources", orders=orders)


def put_off(orders: Sequence[int], *, seconds: float) -> None:
    """Looks at picked operations again after so many seconds: something they wait for is not there yet."""
    if orders:
        QUERIES.rows("put_off_operations", orders=list(orders), seconds=seconds)


def set_aside(orders: Sequence[int]) -> None:
    """Takes picked operations away from the workers they keep killing: unknown, and a person's to look at.

    They come back when somebody asks for a look-up.
    """
    if not orders:
        return
    QUERIES.rows("close_superseded_attempts", orders=list(orders))
    aside = QUERIES.rows("set_operations_aside", orders=list(orders))
    if len(aside) != len(orders):
        raise RuntimeError(f"{len(orders)} operations were to be set aside, {len(aside)} were.")


def renew(grants: Collection[tuple[int, int]], *, worker: str, lease: float) -> set[tuple[int, int]]:
    """Renews (order id, token) pairs by so many seconds; returns those whose grant is still in force."""
    if not grants:
        return set()
    orders, tokens = [order for order, _token in grants], [token for _order, token in grants]
    rows = QUERIES.rows("renew_leases", orders=orders, tokens=tokens, worker=worker, lease=lease)
    return {(row.order_id, row.token) for row in rows}


def take_for_word(*, order_id: int) -> int:
    """A fresh token for a person's word on an unresolved operation: whoever held it is refused from now on.

    Closes attempts whose lease is over. The caller holds the resource's lock (``outcomes.lock``). Raises GrantLive.
    """
    taken = QUERIES.rows("take_for_word", order_id=order_id)
    if not taken:
        raise GrantLive
    QUERIES.rows("close_superseded_attempts", orders=[order_id])
    token: int = taken[0].token
    return token
