"""What is known of operations, the same words for the case, the list and the operation itself."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.db.models.functions import Now

from approvals.console.waits import Wait, waits
from approvals.models import Case
from approvals.representations import FAILED
from ledger.models import Attempt, Evidence, Operation
from ledger.states import NEVER_SENT, SETTLED, UNRESOLVED, AttemptOutcome, OperationState

SILENT = Q(worker__isnull=False, due_at__lte=Now())
"""Its worker should have reported or renewed its lease by now."""
LEASE_OVER = Q(state=OperationState.STARTED) & SILENT
"""Started, and its worker is silent: shown, and counted, as unknown."""
UNKNOWN = Q(state__in=UNRESOLVED) & (Q(state=OperationState.OUTCOME_UNKNOWN) | LEASE_OVER)
"""What nobody can say the outcome of at this moment. Named with both states, so that the small index serves it."""


def of_tenant(tenant_id: UUID) -> QuerySet[Operation]:
    """The organisation's operations, each told whether its worker is silent."""
    silent = ExpressionWrapper(SILENT, output_field=BooleanField())
    return (
        Operation.objects.filter(tool__tenant_id=tenant_id)
        .select_related("order", "tool", "resource")
        .annotate(silent=silent)
    )


def unknown_count(tenant_id: UUID) -> int:
    """How many operations of the organisation are unknown now."""
    return Operation.objects.filter(UNKNOWN, tool__tenant_id=tenant_id).count()


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the sink answered when it happened."""

    reference: str
    status: str
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Holder:
    """The operation another one waits for: until it is settled, it holds the resource that both would touch."""

    id: int
    reference: str
    state: str
    lease_over: bool


@dataclass(frozen=True, slots=True)
class Known:
    """One operation with its attempts, and what they amount to. ``waits_for``, ``wait``: why no worker takes it yet."""

    operation: Operation
    attempts: Sequence[Attempt]
    evidence: Sequence[Evidence]
    waits_for: Holder | None = None
    wait: Wait | None = None

    @property
    def id(self) -> int:
        """The operation's number."""
        return self.operation.order_id

    @property
    def key(self) -> str:
        """Its idempotency key."""
        return self.operation.order.key

    @property
    def state(self) -> OperationState:
        """One of the five."""
        return OperationState(self.operation.state)

    @property
    def silent(self) -> bool:
        """Whether a worker holds it that has let its lease run out."""
        silent: bool = self.operation.silent  # type: ignore[attr-defined]
        return silent

    @property
    def lease_over(self) -> bool:
        """Whether it is started only by name: its worker is silent, so it is unknown."""
        return self.state == OperationState.STARTED and self.silent

    @property
    def settled(self) -> bool:
        """Whether it is final."""
        return self.state in SETTLED

    @property
    def send_count(self) -> int:
        """Attempts known to have sent: they said so, or a late report shows it."""
        return sum(each.sent is True or each.token in self._shown_late for each in self.attempts)

    @property
    def maybe_sent_count(self) -> int:
        """Attempts that never said whether they sent."""
        return sum(
            each.sent is None and each.outcome not in NEVER_SENT and each.token not in self._shown_late
            for each in self.attempts
        )

    def sent_in_words(self, attempt: Attempt) -> str:
        """Whether an attempt has sent, as far as anybody said."""
        if attempt.sent is not None:
            return "once" if attempt.sent else "no"
        return "once, says its late report" if attempt.token in self._shown_late else "never said"

    @property
    def told(self) -> list[tuple[Attempt, str]]:
        """Each attempt, and whether it has sent, in words."""
        return [(each, self.sent_in_words(each)) for each in self.attempts]

    @property
    def _shown_late(self) -> set[int]:
        return {each.token for each in self.evidence if each.outcome not in NEVER_SENT}

    @property
    def started_at(self) -> datetime | None:
        """When the first attempt began."""
        return self.attempts[0].started_at if self.attempts else None

    @property
    def took(self) -> timedelta | None:
        """From the first attempt to the outcome."""
        settled = self.operation.settled_at
        return settled - self.started_at if settled and self.started_at else None

    @property
    def receipt(self) -> Receipt | None:
        """The receipt that settled it as committed."""
        if self.state != OperationState.COMMITTED:
            return None
        closing = next((each for each in self.attempts if each.outcome == AttemptOutcome.COMMITTED), None)
        told = answer_of(closing.receipt) if closing else {}
        at = (closing.ended_at if closing else None) or self.operation.settled_at
        assert at is not None  # settled_iff_settled_at
        return Receipt(self.operation.reference or "", str(told.get("status") or ""), at)

    @property
    def tag(self) -> str:
        """Changes with everything a page tells of it, so that a poll can be answered with nothing."""
        ended = sum(each.ended_at is not None for each in self.attempts)
        held_by = (
            f"{self.waits_for.id}{self.waits_for.state}{self.waits_for.lease_over}" if self.waits_for else ""
        )
        waits = self.wait.reason if self.wait else ""
        told = (self.state, len(self.attempts), ended, len(self.evidence), int(self.silent), held_by, waits)
        return "-".join(str(each) for each in told)


def known(operations: Sequence[Operation]) -> list[Known]:
    """Operations with their attempts and evidence, in two queries however many there are; a few more if some wait."""
    ids = [each.order_id for each in operations]
    attempts: dict[int, list[Attempt]] = {id_: [] for id_ in ids}
    evidence: dict[int, list[Evidence]] = {id_: [] for id_ in ids}
    for attempt in Attempt.objects.filter(operation__in=ids).order_by("operation_id", "number"):
        attempts[attempt.operation_id].append(attempt)
    for piece in Evidence.objects.filter(operation__in=ids).order_by("pk"):
        evidence[piece.operation_id].append(piece)
    holders = _holders(operations)
    waiting = waits([each for each in operations if each.state == OperationState.NOT_STARTED])
    return [
        Known(
            each,
            attempts[each.order_id],
            evidence[each.order_id],
            holders.get(each.order_id),
            waiting.get(each.order_id),
        )
        for each in operations
    ]


def _holders(operations: Sequence[Operation]) -> Mapping[int, Holder]:
    """By the number of the operation that waits: the one that holds its resource."""
    waiting = {
        each.order_id: each.resource.holder_id
        for each in operations
        if each.state == OperationState.NOT_STARTED and each.resource.holder_id is not None
    }
    if not waiting:
        return {}
    silent = ExpressionWrapper(SILENT, output_field=BooleanField())
    rows = Operation.objects.filter(pk__in=set(waiting.values())).select_related("order")
    holding = {each.order_id: each for each in rows.annotate(silent=silent)}
    subjects = {each.order.subject for each in holding.values()}
    references = dict(Case.objects.filter(pk__in=subjects).values_list("pk", "reference"))
    return {id_: _holder(holding[holder], references) for id_, holder in waiting.items()}


def _holder(holding: Any, references: Mapping[int, str]) -> Holder:
    lease_over = holding.state == OperationState.STARTED and holding.silent
    return Holder(holding.order_id, references[holding.order.subject], holding.state, lease_over)


def newest_of_case(tenant_id: UUID, case_id: int) -> Known | None:
    """The case's operation that may act or has acted, else its newest, if an approval has ever written one."""
    its = of_tenant(tenant_id).filter(order__subject=case_id).annotate(failed=FAILED)
    newest = its.order_by(
        "failed", "-order_id"
    ).first()  # a correction makes an older one the one that happened
    return known([newest])[0] if newest else None


def answer_of(receipt: str | None) -> Mapping[str, Any]:
    """A stored receipt, read; empty where it is no JSON object."""
    try:
        read = json.loads(receipt or "{}")
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


_SENT = {
    OperationState.NOT_STARTED: "Nothing was sent.",
    OperationState.STARTED: "A worker has taken it and may have sent it.",
    OperationState.COMMITTED: "It has happened, once, and its receipt is stored.",
    OperationState.FAILED_BEFORE_COMMIT: "Nothing came of what was approved before, and nothing was sent since.",
    OperationState.OUTCOME_UNKNOWN: "It may have been sent before; we do not know if it happened.",
}


def was_anything_sent(last: Known | None) -> str:
    """One sentence on whether anything of a case has left this house."""
    if last is None or (last.state == OperationState.FAILED_BEFORE_COMMIT and not last.attempts):
        return "Nothing was sent."
    return _SENT[last.state]
