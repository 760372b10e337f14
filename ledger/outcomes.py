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


def lock_in_force(reports: Sequence[Report]) -> dict[tuple[int, int], OperationState]:
    """{(order id, token): the order's state} for the grants that are still in force, their resources locked.

    The others come too late: a newer grant was given, or this very report was recorded before.
    """
    rows = QUERIES.rows(
        "lock_grants_in_force",
        orders=[each.order_id for each in reports],
        tokens=[each.token for each in reports],
    )
    return {(row.order_id, row.token): OperationState(row.state) for row in rows}


def record(reports: Sequence[Report]) -> None:
    """Writes reports that are in force: operation, attempt, resource, budgets. The caller has locked the resources."""
    if not reports:
        return
    rows = QUERIES.rows(
        "record_operations",
        orders=[each.order_id for each in reports],
        tokens=[each.token for each in reports],
        states=[each.state.value for each in reports],
        references=[each.reference if each.state == OperationState.COMMITTED else None for each in reports],
        reasons=[each.reason for each in reports],
        waits=[each.wait for each in reports],
        outcomes=[each.outcome.value for each in reports],
        sent=[each.sent for each in reports],
        lookups=[each.lookups for each in reports],
        stored=[each.answer_stored for each in reports],
        receipts=[each.receipt for each in reports],
        notes=[each.note for each in reports],
    )
    if len(rows) != len(reports):
        raise RuntimeError(f"{len(reports)} recordings were in force, {len(rows)} were written.")
    reserved = {row.order_id for row in rows if row.reserved}
    final = [each for each in reports if each.state in SETTLED and each.order_id in reserved]
    budgets.settle(
        orders=[each.order_id for each in final],
        committed=[each.order_id for each in final if each.state == OperationState.COMMITTED],
    )


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
    named = {each.order_id: each.reference for each in reports if each.reference is not None}
    if not named:
        return []
    rows = QUERIES.rows("other_references", orders=list(named), references=list(named.values()))
    others = {row.operation_id for row in rows}
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
