"""A breaker per tool: a sink that keeps saying it is busy, or that keeps silent, is left alone for a while.

The pause is a row like a person's, with a reason and an end; calls on the wire finish and look-ups go on.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from django.conf import settings
from django.db import Error

from ledger import control_events, halts
from ledger.claims import Grant
from ledger.outcomes import Report
from ledger.states import AttemptOutcome, ControlEventKind

log = logging.getLogger(__name__)

_IN_A_ROW = {AttemptOutcome.BUSY: 3, AttemptOutcome.NOT_SENT: 5, AttemptOutcome.UNCERTAIN: 5}
"""So many such answers one after the other open the breaker. Other answers show that the sink works."""


class Breaker:
    """Counts, in one worker, the unhelpful answers of each tool's sink; pauses the tool when they come in a row."""

    def __init__(self) -> None:
        self._in_a_row: Counter[tuple[int, AttemptOutcome]] = Counter()
        self._opened: Counter[int] = Counter()

    def watch(self, grants: Sequence[Grant], reports: Sequence[Report]) -> None:
        """Takes note of these answers. A pause that cannot be written is tried again with the next one."""
        for grant, report in zip(grants, reports, strict=True):
            try:
                self._watch(grant, report)
            except Error:
                log.warning("the breaker of %s could not be opened", grant.tool, exc_info=True)

    def _watch(self, grant: Grant, report: Report) -> None:
        if report.outcome == AttemptOutcome.NOT_SENT and report.lookups:
            return  # the sink has answered a look-up: something else kept the request back, such as a halt
        if report.outcome not in _IN_A_ROW:
            for outcome in _IN_A_ROW:
                self._in_a_row.pop((grant.tool_id, outcome), None)
            self._opened.pop(grant.tool_id, None)
            return
        self._in_a_row[grant.tool_id, report.outcome] += 1
        if self._in_a_row[grant.tool_id, report.outcome] >= _IN_A_ROW[report.outcome]:
            self._open(grant, report)
            self._in_a_row.pop((grant.tool_id, report.outcome))

    def _open(self, grant: Grant, report: Report) -> None:
        """For twice as long each time, at least what the sink asked for."""
        execution = settings.EXECUTION
        seconds = min(execution.backoff * 2 ** self._opened[grant.tool_id], execution.backoff_most)
        self._opened[grant.tool_id] += 1
        if report.outcome == AttemptOutcome.BUSY:
            seconds = max(seconds, report.wait or 0.0)
        times = _IN_A_ROW[report.outcome]
        halts.begin(
            tenant_id=grant.tenant_id,
            tool_id=grant.tool_id,
            by="breaker",
            reason=f"The sink answered {report.outcome.label.lower()} {times} times in a row: {report.note or '–'}",
            ends_in=timedelta(seconds=seconds),
        )
        control_events.record(
            tenant_id=grant.tenant_id,
            kind=ControlEventKind.BREAKER_OPENED,
            source=f"worker:{report.worker}",
            action=grant.tool,
            subject=grant.subject,
            key=grant.key,
            outcome=report.outcome,
            seconds=round(seconds, 1),
        )
