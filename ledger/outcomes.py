"""Recording what an attempt came to: by the token in force, once; anything else is kept as evidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from ledger import budgets
from ledger.models import Attempt, Evidence, Operation
from ledger.picks import QUERIES
from ledger.states import SETTLED, AttemptOutcome, FindingKind, OperationState


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's word on its attempt.

    ``state`` is what the operation is to become; ``wait`` the seconds until it is granted again, None when final.
    ``sent`` is None where the worker cannot say. ``receipt`` is canonical JSON from the sink. ``finding``: what
    disagrees with the ledger, where something does. ``earlier``: (idempotency key, reference, receipt) of an older
    operation of the same action whose effect was found at the sink, so that this one was not sent.
    """

    order_id: int
    tenant_id: UUID
    key: str
    subject: int
    tool: str
    token: int
    worker: str
    outcome: AttemptOutcome
    state: OperationState
    wait: float | None
    sent: bool | None
    lookups: int = 0
    answer_stored: bool = False
    reference: str | None = None
    receipt: str | None = None
    reason: str | None = None
    note: str | None = None
    finding: FindingKind | None = None
    earlier: tuple[str, str, str] | None = None


def lock(orders: Sequence[int]) -> None:
    """Locks the operations' resources in id order: no grant can be given until the transaction ends."""
    QUERIES.rows("lock_recorded_resources", orders=list(orders))


def in_force(reports: Sequence[Report]) -> dict[tuple[int, int], OperationState]:
    """{(order id, token): the order's state} for the tokens that are still the newest. The others come too late."""
    rows = QUERIES.rows(
        "current_grants", orders=[each.order_id for each in reports], tokens=[each.token for each in reports]
    )
    return {(row.order_id, row.token): OperationState(row.state) for row in rows}


def record(reports: Sequence[Report]) -> None:
    """Writes reports that are in force: operation, attempt, resource. The resources are locked by the caller."""
    if not reports:
        return
    orders, tokens = [each.order_id for each in reports], [each.token for each in reports]
    QUERIES.rows(
        "close_attempts",
        orders=orders,
        tokens=tokens,
        outcomes=[each.outcome.value for each in reports],
        sent=[each.sent for each in reports],
        lookups=[each.lookups for each in reports],
        stored=[each.answer_stored for each in reports],
        receipts=[each.receipt for each in reports],
        notes=[each.note for each in reports],
    )
    recorded = QUERIES.rows(
        "record_operations",
        orders=orders,
        tokens=tokens,
        states=[each.state.value for each in reports],
        references=[each.reference if each.state == OperationState.COMMITTED else None for each in reports],
        reasons=[each.reason for each in reports],
        waits=[each.wait for each in reports],
    )
    if len(recorded) != len(reports):
        raise RuntimeError(f"{len(reports)} recordings were in force, {len(recorded)} were written.")
    committed = [each.order_id for each in reports if each.state == OperationState.COMMITTED]
    final = [each.order_id for each in reports if each.state in SETTLED]
    if final:
        QUERIES.rows("settle_resources", committed=committed, final=final)
        budgets.settle(orders=final, committed=committed)


def keep_as_evidence(report: Report) -> Evidence:
    """Stores a report that came too late, and makes an operation that is not final due for a look-up at once."""
    evidence = Evidence.objects.create(
        operation_id=report.order_id,
        token=report.token,
        worker=report.worker,
        outcome=report.outcome,
        reference=report.reference,
        receipt=report.receipt,
        note=report.note,
    )
    QUERIES.rows("make_due", orders=[report.order_id])
    return evidence


def contradicts(report: Report) -> bool:
    """Whether late evidence disagrees with what is settled: an effect that is recorded as absent, or another one."""
    if report.reference is None:
        return False
    operation = Operation.objects.get(order_id=report.order_id)
    return operation.state in SETTLED and operation.reference != report.reference


def contradicted(reports: Sequence[Report]) -> list[Report]:
    """Those of the reports whose effect is not the one that late evidence had named: it may have happened twice."""
    references = {each.order_id: each.reference for each in reports if each.reference is not None}
    if not references:
        return []
    named = Evidence.objects.filter(operation_id__in=list(references), reference__isnull=False)
    others = {each.operation_id for each in named if each.reference != references[each.operation_id]}
    return [each for each in reports if each.order_id in others]


def is_known(report: Report) -> bool:
    """Whether this very report was recorded or kept before: that was committed, only its answer was lost."""
    mine = {
        "operation_id": report.order_id,
        "token": report.token,
        "worker": report.worker,
        "outcome": report.outcome,
    }
    return Attempt.objects.filter(**mine).exists() or Evidence.objects.filter(**mine).exists()
