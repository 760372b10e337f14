"""Grants: which due operation a worker may take on, under which fencing token, for how long.

Cut in two so that the approving side can have its say between: ``pick`` locks and checks what the ledger knows,
``grant`` gives tokens to what may go on. Both run in the caller's transaction (docs/protocol.md, Claim).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db.models import DurationField, ExpressionWrapper, F, Max, Min, Q
from django.db.models.functions import Now

from ledger import tools
from ledger.models import Attempt, Operation, Order, ToolVersion
from ledger.sql import Queries
from ledger.states import NEVER_SENT, AttemptOutcome, EnforcementClass, OperationState

QUERIES = Queries(Path(__file__).with_name("queries.sql"))

# How many due resources are looked at for each one wanted: hot ones are held, and must not hide the free ones behind.
_LOOK_AHEAD = 4


@dataclass(frozen=True, slots=True)
class Picked:
    """A locked, due operation, with what the checks of the claim compare.

    ``refusal`` is the ledger's own reason against it, if any. ``maybe_sent``: an earlier attempt may have reached
    the sink, so that only a look-up or the same key may follow.
    """

    order_id: int
    resource_id: int
    tenant_id: UUID
    key: str
    subject: int
    approved_revision: int
    fingerprint: str
    digest: str
    state: OperationState
    attempts: int
    maybe_sent: bool
    refusal: str | None
    operation: Operation


@dataclass(frozen=True, slots=True)
class Grant:
    """One attempt: the frozen request, the token it carries, and what may be done under it. Times in seconds.

    ``since_sent`` counts from the grant of the latest attempt that may have been sent; ``earlier_keys`` are those of
    older operations of the same action, which failed: their effects are looked for before this one is first sent.
    ``sink_version`` is what the proposal expects the sink's own record to be at, for its If-Match.
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
    earlier_keys: tuple[str, ...] = ()
    sink_version: str | None = None


def pick(*, after: int, most: int) -> tuple[list[Picked], int]:
    """Locks up to ``most`` not-started operations, at most one a resource; returns them and where to go on.

    Resources are taken in turn from ``after``, so that a hot backlog starves nobody; 0 begins anew.
    """
    looked_at = most * _LOOK_AHEAD
    due = [row.resource_id for row in QUERIES.rows("due_resources", after=after, most=looked_at)]
    if not due:
        return [], 0
    free = [row.id for row in QUERIES.rows("lock_free_resources", resources=due, most=most)]
    go_on = free[-1] if len(free) == most else due[-1] if len(due) == looked_at else 0
    if not free:
        return [], go_on
    return _picked(QUERIES.rows("pick_due_operations", resources=free)), go_on


def pick_again(*, most: int) -> list[Picked]:
    """Locks up to ``most`` unresolved operations whose lease or back-off is over."""
    due = QUERIES.rows("due_again", most=most)
    if not due:
        return []
    resources, orders = [row.resource_id for row in due], [row.order_id for row in due]
    held = [row.id for row in QUERIES.rows("lock_held_resources", resources=resources, orders=orders)]
    return _picked(QUERIES.rows("pick_due_again", resources=held)) if held else []


def _picked(rows: Sequence[object]) -> list[Picked]:
    versions: dict[int, int] = {row.order_id: row.resource_version for row in rows}  # type: ignore[attr-defined]
    operations = (
        Operation.objects.filter(order_id__in=list(versions))
        .select_related("order__tool_version", "tool", "resource")
        .order_by("order_id")
    )
    newest = tools.newest_versions({operation.tool_id for operation in operations})
    maybe_sent = _maybe_sent(versions)
    return [
        Picked(
            order_id=operation.order_id,
            resource_id=operation.resource_id,
            tenant_id=operation.order.tenant_id,
            key=operation.order.key,
            subject=operation.order.subject,
            approved_revision=operation.order.approved_revision,
            fingerprint=operation.order.fingerprint,
            digest=operation.order.digest,
            state=OperationState(operation.state),
            attempts=operation.attempt_count,
            maybe_sent=operation.order_id in maybe_sent,
            refusal=_refusal(operation, versions[operation.order_id], newest),
            operation=operation,
        )
        for operation in operations
    ]


def _refusal(operation: Operation, resource_version: int, newest: Mapping[int, ToolVersion]) -> str | None:
    """The ledger's own reason against an operation. The value limit is the tool's newest: it may have been lowered."""
    order = operation.order
    if order.expected_version is not None and order.expected_version != resource_version:
        return "resource_moved"
    if tools.over_limit(newest[operation.tool_id], order.amount_minor, order.currency):
        return "over_value_limit"
    return None


def _maybe_sent(orders: Mapping[int, int]) -> set[int]:
    """Those of the orders with an attempt that may have reached the sink: it said so, or never said."""
    return set(
        Attempt.objects.filter(operation_id__in=list(orders))
        .filter(Q(sent=True) | Q(sent=None))
        .exclude(outcome__in=NEVER_SENT)
        .values_list("operation_id", flat=True)
    )


def grant(picked: Sequence[Picked], *, worker: str, lease: float, standing: set[int]) -> list[Grant]:
    """Gives each picked operation a fresh token, a lease of so many seconds and an attempt.

    ``standing`` names the orders whose approval still stands: only these may be sent.
    """
    if not picked:
        return []
    orders, resources = [each.order_id for each in picked], [each.resource_id for each in picked]
    QUERIES.rows("close_superseded_attempts", orders=orders)
    rows = QUERIES.rows("grant_operations", orders=orders, resources=resources, worker=worker, lease=lease)
    granted = {row.order_id: row for row in rows}
    if granted.keys() != set(orders):
        raise RuntimeError(f"{len(orders)} operations were locked for a grant, {len(granted)} were granted.")
    histories = _histories([each.order_id for each in picked if each.attempts])
    earlier = _earlier_keys(picked)
    return [
        _grant(
            each,
            granted[each.order_id],
            histories.get(each.order_id, _NO_HISTORY),
            earlier.get(each.order_id, ()),
            each.order_id in standing,
        )
        for each in picked
    ]


@dataclass(frozen=True, slots=True)
class _History:
    key_window_left: float | None = None
    answer_stored: bool = False
    in_progress_count: int = 0
    since_sent: float | None = None


_NO_HISTORY = _History()


def _histories(orders: Sequence[int]) -> dict[int, _History]:
    """What earlier attempts mean for the next: how long the key is still good, what repeating cannot change."""
    if not orders:
        return {}
    rows = (
        Operation.objects.filter(order_id__in=orders)
        .annotate(
            first_sent=Min(
                "attempts__started_at",
                filter=_MAYBE_SENT,
            ),
            last_sent=Max("attempts__started_at", filter=_MAYBE_SENT),
        )
        .annotate(
            window_left=ExpressionWrapper(
                F("first_sent") + F("order__tool_version__key_window") - Now(), output_field=DurationField()
            ),
            since_sent=ExpressionWrapper(Now() - F("last_sent"), output_field=DurationField()),
        )
        .values_list("order_id", "window_left", "since_sent")
    )
    stored = set(
        Attempt.objects.filter(operation_id__in=orders, answer_stored=True).values_list(
            "operation_id", flat=True
        )
    )
    waiting = list(
        Attempt.objects.filter(operation_id__in=orders, outcome=AttemptOutcome.IN_PROGRESS).values_list(
            "operation_id", flat=True
        )
    )
    return {
        order_id: _History(
            key_window_left=left.total_seconds() if left is not None else None,
            answer_stored=order_id in stored,
            in_progress_count=waiting.count(order_id),
            since_sent=since.total_seconds() if since is not None else None,
        )
        for order_id, left, since in rows
    }


_MAYBE_SENT = Q(attempts__outcome=None) | ~Q(attempts__outcome__in=NEVER_SENT)


def _earlier_keys(picked: Sequence[Picked]) -> dict[int, tuple[str, ...]]:
    """{order id: keys of the action's older operations}, oldest first. Those failed: else this one were not here."""
    subjects = {each.subject: each.order_id for each in picked}
    keys: dict[int, list[str]] = defaultdict(list)
    for subject, order_id, key in (
        Order.objects.filter(subject__in=list(subjects)).order_by("id").values_list("subject", "id", "key")
    ):
        if order_id < subjects[subject]:
            keys[subjects[subject]].append(key)
    return {order_id: tuple(earlier) for order_id, earlier in keys.items()}


def _grant(
    picked: Picked, row: object, history: _History, earlier_keys: tuple[str, ...], standing: bool
) -> Grant:
    operation, version = picked.operation, picked.operation.order.tool_version
    return Grant(
        order_id=picked.order_id,
        tenant_id=picked.tenant_id,
        key=picked.key,
        fingerprint=picked.fingerprint,
        subject=picked.subject,
        body=operation.order.body,
        tool=operation.tool.name,
        connector=version.connector,
        enforcement=EnforcementClass(version.enforcement),
        resource=operation.resource.name,
        number=row.number,  # type: ignore[attr-defined]
        token=row.token,  # type: ignore[attr-defined]
        state=OperationState.STARTED if picked.state == OperationState.NOT_STARTED else picked.state,
        maybe_sent=picked.maybe_sent,
        may_send=standing,
        key_window_left=history.key_window_left,
        answer_stored=history.answer_stored,
        in_progress_count=history.in_progress_count,
        sink_settings=version.sink_settings,
        settle_time=version.settle_time.total_seconds(),
        since_sent=history.since_sent,
        earlier_keys=earlier_keys,
        sink_version=operation.order.sink_version,
    )


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


def renew(grants: Collection[tuple[int, int]], *, worker: str, lease: float) -> set[tuple[int, int]]:
    """Renews (order id, token) pairs by so many seconds; returns those whose grant is still in force."""
    if not grants:
        return set()
    orders, tokens = [order for order, _token in grants], [token for _order, token in grants]
    rows = QUERIES.rows("renew_leases", orders=orders, tokens=tokens, worker=worker, lease=lease)
    return {(row.order_id, row.token) for row in rows}
