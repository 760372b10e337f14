"""Corrections: the sink's record shows an effect that was taken for absent. Counted, alarmed, never the other way."""

from django.db import IntegrityError, transaction

from accounts.actors import system_actor
from approvals import cases, execution, proposals
from approvals.models import Case
from approvals.states import Act, CaseState
from ledger import attestations, control_events, findings, operations
from ledger.models import Operation
from ledger.states import UNRESOLVED, ControlEventKind, FindingKind, OperationState

_ABOUT = 255
_SECOND_EFFECT = (
    "one_operation_per_sink_reference",
    "one_live_operation_per_action",
    "one_live_compensation_per_effect",
)
"""What the tables call it when what the sink shows would be an effect too many: rules, not faults of ours."""


def correct(*, order_id: int, receipt_reference: str, receipt_text: str | None, source: str) -> bool:
    """Takes a failed operation to committed and its case to executed, on the sink's own record under its key.

    ``source`` names who saw the record, e.g. ``reconciliation`` or ``worker:…``. A not-started operation of the action
    is ended first (``earlier_effect``). While another one may still act, or its effect has happened as well, nothing
    is corrected: a finding stays open for a person, and False is returned. So it is where there is nothing to correct.
    """
    try:
        with transaction.atomic():
            return _correct(order_id, receipt_reference, receipt_text, source)
    except IntegrityError as error:
        if not any(rule in str(error) for rule in _SECOND_EFFECT):
            raise
        with transaction.atomic():
            operation = attestations.locked(order_id)
            execution.lock_case(operation.order.subject)
            _open_finding(operation, FindingKind.TWICE, receipt_reference, source)
        return False


def _correct(order_id: int, reference: str, receipt: str | None, source: str) -> bool:
    operation = attestations.locked(order_id)
    execution.lock_case(operation.order.subject)
    operation.refresh_from_db()
    if operation.state != OperationState.FAILED_BEFORE_COMMIT:
        return False
    others = Operation.objects.filter(action_key=operation.action_key).exclude(pk=operation.pk)
    happened_too = others.filter(state=OperationState.COMMITTED).exists()
    _open_finding(operation, FindingKind.TWICE if happened_too else FindingKind.LATE, reference, source)
    if happened_too or others.filter(state__in=UNRESOLVED).exists():
        return False
    operations.end_unstarted(subject=operation.order.subject, reason="earlier_effect")
    attestations.correct(operation=operation, reference=reference, receipt=receipt, source=source)
    case = Case.objects.get(pk=operation.order.subject)
    # What happened is what was approved then, whatever has been proposed since.
    case.proposal = proposals.of_revision(case, operation.order.approved_revision)
    assert case.state not in (
        CaseState.EXECUTING,
        CaseState.UNKNOWN,
        CaseState.EXECUTED,
    )  # the machines agree
    case.correct()
    actor = system_actor(source[:100], case.tenant_id)
    cases.record_revision(case, act=Act.CORRECTED, actor=actor, reason_code="sink_record", reason=reference)
    control_events.record(
        tenant_id=case.tenant_id,
        kind=ControlEventKind.CORRECTION,
        source=source,
        action=case.action,
        subject=case.pk,
        key=operation.order.key,
        reference=reference,
    )
    return True


def _open_finding(operation: Operation, kind: FindingKind, reference: str, source: str) -> None:
    order = operation.order
    findings.open_finding(
        tenant_id=order.tenant_id,
        kind=kind,
        about=f"{order.key}:{reference}"[:_ABOUT],
        subject=order.subject,
        order_id=operation.pk,
        tool_id=operation.tool_id,
        reference=reference,
        amount_minor=order.amount_minor,
        currency=order.currency,
        source=source,
    )
