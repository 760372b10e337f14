"""Which due operations a claim may look at: locked, each with what its checks and its grant need.

Rows are plain values: a claim takes fifty at a time, and a model instance for each would cost more than the locks.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction

from accounts.sql import Queries
from ledger import tools
from ledger.models import ToolVersion
from ledger.states import OperationState

QUERIES = Queries(Path(__file__).with_name("queries.sql"))

# How often as many due resources are looked at as are wanted: hot ones are held, and must not hide the free ones.
_LOOKS = 3


@dataclass(frozen=True, slots=True)
class History:
    """What earlier attempts mean for the next. Times in seconds, None where nothing may have been sent.

    ``lost``: attempts whose worker never said what came of them.
    """

    maybe_sent: bool = False
    first_sent: float | None = None
    last_sent: float | None = None
    answer_stored: bool = False
    in_progress: int = 0
    lost: int = 0


NO_HISTORY = History()


@dataclass(frozen=True, slots=True)
class Picked:
    """A locked, due operation, with what the checks of the claim compare.

    ``refusal`` is the ledger's own reason against it, if any; ``fallen_silent``: its lease ended in a worker's hands.
    """

    order_id: int
    resource_id: int
    resource: str
    tenant_id: UUID
    tool_id: int
    agent_id: int | None
    version: ToolVersion
    key: str
    subject: int
    approved_revision: int
    fingerprint: str
    digest: str
    body: str
    amount_minor: int | None
    currency: str | None
    sink_version: str | None
    state: OperationState
    attempts: int
    refusal: str | None
    fallen_silent: bool
    earlier_keys: tuple[str, ...]
    history: History

    @property
    def maybe_sent(self) -> bool:
        """An earlier attempt may have reached the sink: only a look-up or the same key may follow."""
        return self.history.maybe_sent

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.version.tool.name


@contextmanager
def transaction_by_index() -> Iterator[None]:
    """One transaction of a claim or a recording: all it asks for is found by index, from the first row on."""
    with transaction.atomic():
        QUERIES.rows("find_by_index")
        yield


def pick(*, after: int, most: int, full: Sequence[int] = ()) -> tuple[list[Picked], int]:
    """Locks up to ``most`` not-started operations, at most one a resource; returns them and where to go on.

    Resources are taken in turn from ``after``, so that a hot backlog starves nobody; 0 begins anew. Those of the
    tools in ``full`` are passed by.
    """
    free: list[int] = []
    for _ in range(_LOOKS):
        due = [
            row.resource_id for row in QUERIES.rows("due_resources", after=after, most=most, full=list(full))
        ]
        if due:
            wanted = most - len(free)
            free += [row.id for row in QUERIES.rows("lock_free_resources", resources=due, most=wanted)]
        after = free[-1] if len(free) == most else due[-1] if len(due) == most else 0
        if len(free) == most or after == 0:
            break
    return pick_of(free), after


def pick_of(resources: Sequence[int]) -> list[Picked]:
    """Locks the longest-due operation of each of these resources, which the caller has locked."""
    if not resources:
        return []
    rows = QUERIES.rows("pick_due_operations", resources=list(resources))
    return [_picked(row, NO_HISTORY) for row in rows]


def lock_free(resource_id: int) -> bool:
    """Locks one resource if nobody holds it; returns whether it is locked now."""
    return bool(QUERIES.rows("lock_free_resources", resources=[resource_id], most=1))


def due_again(*, most: int) -> list[tuple[int, int]]:
    """Up to ``most`` (order id, resource id) of unresolved operations whose lease or back-off is over."""
    return [(row.order_id, row.resource_id) for row in QUERIES.rows("due_again", most=most)]


def pick_again(due: Sequence[tuple[int, int]]) -> list[Picked]:
    """Locks those of the operations that ``due_again`` named and that still are; passes by what somebody has locked."""
    if not due:
        return []
    orders, resources = [order for order, _resource in due], [resource for _order, resource in due]
    held = [row.id for row in QUERIES.rows("lock_held_resources", resources=resources, orders=orders)]
    if not held:
        return []
    rows = QUERIES.rows("pick_due_again", resources=held)
    histories = _histories([row.order_id for row in rows])
    return [_picked(row, histories[row.order_id]) for row in rows]


def _histories(orders: list[int]) -> dict[int, History]:
    return {
        row.operation_id: History(
            maybe_sent=row.maybe_sent,
            first_sent=row.first_sent,
            last_sent=row.last_sent,
            answer_stored=row.answer_stored,
            in_progress=row.in_progress,
            lost=row.lost,
        )
        for row in QUERIES.rows("attempts_so_far", orders=orders)
    }


def _picked(row: Any, history: History) -> Picked:
    return Picked(
        order_id=row.order_id,
        resource_id=row.resource_id,
        resource=row.resource,
        tenant_id=row.tenant_id,
        tool_id=row.tool_id,
        agent_id=row.agent_id,
        version=tools.version(row.tool_version_id),
        key=row.key,
        subject=row.subject,
        approved_revision=row.approved_revision,
        fingerprint=row.fingerprint,
        digest=row.digest,
        body=row.body,
        amount_minor=row.amount_minor,
        currency=row.currency,
        sink_version=row.sink_version,
        state=OperationState(row.state),
        attempts=row.attempt_count,
        refusal=_refusal(row, tools.version(row.newest_id)),
        fallen_silent=row.worker is not None,
        earlier_keys=tuple(row.earlier_keys),
        history=history,
    )


def _refusal(row: Any, newest: ToolVersion) -> str | None:
    """The ledger's own reason against an operation. The value limit is the tool's newest: it may have been lowered."""
    if row.expected_version is not None and row.expected_version != row.resource_version:
        return "resource_moved"
    if tools.over_limit(newest, row.amount_minor, row.currency):
        return "over_value_limit"
    return None
