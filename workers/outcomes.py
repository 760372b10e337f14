"""The recording, composed: resources locked, cases settled, operations recorded by the token in force.

A report whose token is no longer in force changes nothing: it is kept as evidence and counted as a fenced write.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.db import DataError, IntegrityError, transaction

from approvals import corrections, execution
from ledger import control_events, findings, halts, operations, outcomes, picks
from ledger.outcomes import Report
from ledger.states import AttemptOutcome, ControlEventKind, FindingKind, OperationState

log = logging.getLogger(__name__)

_MOST_ABOUT = 255
"""Characters that name the matter of a finding; a sink's reference alone may have as many."""
_MOST_NOTE = 500


def record(reports: Sequence[Report]) -> None:
    """Records a group of reports; one that the database refuses does not take the others down.

    Raises OperationalError when the database is away: nothing was written, or all of it; call again.
    """
    try:
        late = _record_together(reports)
    except (DataError, IntegrityError, RuntimeError):
        log.exception("a recording of %d was refused; each is recorded by itself", len(reports))
        late = [report for each in reports for report in _record_alone(each)]
    for report in late:
        _keep_alone(report)
    for report in reports:
        _correct_earlier(report)


def _record_alone(report: Report) -> list[Report]:
    try:
        return _record_together([report])
    except (DataError, IntegrityError, RuntimeError) as refusal:
        log.exception("the recording of operation %s was refused", report.key)
        return _set_aside(report, str(refusal))


def _set_aside(report: Report, why: str) -> list[Report]:
    """What the ledger cannot take as an outcome is evidence: the operation is unknown, and a finding says why."""
    unknown = replace(
        report,
        outcome=AttemptOutcome.UNCERTAIN,
        state=OperationState.OUTCOME_UNKNOWN,
        wait=settings.EXECUTION.backoff_most,
        reference=None,
        receipt=None,
        reason="recording_refused",
        note=why[:_MOST_NOTE].replace("\x00", ""),
    )
    try:
        with transaction.atomic():
            late = _record_together([unknown])
            if not late:
                execution.lock_case(report.subject)
                outcomes.keep_as_evidence(_storable(report))
                _open_finding(report, FindingKind.DIFFERS)
    except (DataError, IntegrityError, RuntimeError):
        # Its lease runs out, and a successor asks the sink.
        log.exception("operation %s could not be set aside", report.key)
        return []
    return [report] if late else []


def _storable(report: Report) -> Report:
    """The report as far as the tables take it, whatever made them refuse it."""
    return replace(
        report,
        reference=report.reference[:_MOST_ABOUT] if report.reference else None,
        receipt=report.receipt.replace("\x00", "\N{REPLACEMENT CHARACTER}") if report.receipt else None,
        note=report.note[:_MOST_NOTE] if report.note else None,
    )


def _record_together(reports: Sequence[Report]) -> list[Report]:
    """Writes the reports in force in one transaction; returns the others."""
    with picks.transaction_by_index():
        states = outcomes.lock_in_force(reports)
        current = [each for each in reports if (each.order_id, each.token) in states]
        execution.settle(
            {
                each.subject: (each.state, each.reason or "")
                for each in current
                if each.state != states[each.order_id, each.token]
            },
            worker=reports[0].worker,
        )
        outcomes.record(current)
        for each in outcomes.contradicted(current):  # its case is locked: it has just been settled
            _open_finding(each, FindingKind.TWICE)
        for each in current:
            _open_what_disagrees(each)
    return [each for each in reports if (each.order_id, each.token) not in states]


def _open_what_disagrees(report: Report) -> None:
    """A finding the worker met, a sink that has seen more grants than we gave, an effect under an older key."""
    if report.finding is not None:
        execution.lock_case(report.subject)
        _open_finding(report, report.finding)
    if report.reason == "fenced":
        # By the token in force: the sink knows grants that this ledger has forgotten (docs/restore.md).
        execution.lock_case(report.subject)
        _open_finding(report, FindingKind.DIFFERS)
        halts.begin(
            tenant_id=report.tenant_id,
            tool_id=operations.tool_of(report.order_id),
            by="fence",
            reason="The sink has seen a higher token than this ledger ever gave: the ledger has gone backwards.",
        )
    if report.earlier is not None:
        _count(
            report, ControlEventKind.EARLIER_EFFECT, earlier=report.earlier[0], reference=report.earlier[1]
        )


def _correct_earlier(report: Report) -> None:
    """An older operation of the action did happen: the ledger says so from now on. Reconciliation would find it too."""
    if report.earlier is None:
        return
    key, reference, receipt = report.earlier
    order_id = operations.id_of(tenant_id=report.tenant_id, key=key)
    corrections.correct(
        order_id=order_id, receipt_reference=reference, receipt_text=receipt, source=f"worker:{report.worker}"
    )


def _keep_alone(report: Report) -> None:
    try:
        _keep(report)
    except (DataError, IntegrityError):
        log.exception("the evidence about operation %s was refused", report.key)


def _keep(report: Report) -> None:
    """Stores a report that came too late; one that had been recorded already (a lost COMMIT answer) is done."""
    with transaction.atomic():
        if outcomes.is_known(report):
            return
        execution.lock_case(report.subject)
        outcomes.keep_as_evidence(report)
        if outcomes.contradicts(report):
            _open_finding(report, FindingKind.LATE)
        # Nothing is refused by an exception here, so the event stands or falls with the evidence.
        _count(report, ControlEventKind.FENCED_WRITE, token=report.token, outcome=report.outcome)


def _count(report: Report, kind: ControlEventKind, **detail: Any) -> None:
    control_events.record(
        tenant_id=report.tenant_id,
        kind=kind,
        source=f"worker:{report.worker}",
        action=report.tool,
        subject=report.subject,
        key=report.key,
        **detail,
    )


def _open_finding(report: Report, kind: FindingKind) -> None:
    findings.open_finding(
        tenant_id=report.tenant_id,
        kind=kind,
        about=f"{report.key}:{report.reference}"[:_MOST_ABOUT],
        subject=report.subject,
        order_id=report.order_id,
        reference=report.reference[:_MOST_ABOUT] if report.reference else None,
        token=report.token,
        said=report.reason or report.outcome,
    )
