"""A breaker per tool: a sink that keeps saying it is busy, or that keeps silent, is left alone for a while.

The pause is a row like a person's, with a reason and an end; calls on the wire finish and look-ups go on.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
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

_Answers = dict[AttemptOutcome, tuple[Grant, Report]]
"""What came of one tool's orders at one moment: for each outcome an order that had it."""


class Breaker:
    """Counts, in one worker, the unhelpful answers of each tool's sink; pauses the tool when they come in a row."""

    def __init__(self) -> None:
        self._in_a_row: Counter[tuple[int, AttemptOutcome]] = Counter()
        self._opened: Counter[int] = Counter()

    def watch(self, grants: Sequence[Grant], reports: Sequence[Report]) -> None:
        """Takes note of answers that came at one moment: of each tool as one, however many orders they are.

        A pause that cannot be written is tried again with the next ones.
        """
        for answers in _by_tool(grants, reports):
            try:
                self._watch(answers)
            except Error:
                tool = next(iter(answers.values()))[0].tool
                log.warning("the breaker of %s could not be opened", tool, exc_info=True)

    def _watch(self, answers: _Answers) -> None:
        grant, _report = next(iter(answers.values()))
        if answers.keys() - _IN_A_ROW.keys():
            self._forget(grant.tool_id)
            self._opened.pop(grant.tool_id, None)
            return
        if halts.is_paused(tenant_id=grant.tenant_id, tool_id=grant.tool_id):
            return  # it was on the wire before: it says no more than what the pause was opened for
        for outcome, (grant, report) in answers.items():
            self._in_a_row[grant.tool_id, outcome] += 1
            if self._in_a_row[grant.tool_id, outcome] >= _IN_A_ROW[outcome]:
                self._open(grant, report)
                self._forget(grant.tool_id)
                return

    def _forget(self, tool_id: int) -> None:
        for outcome in _IN_A_ROW:
            self._in_a_row.pop((tool_id, outcome), None)

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


_UNHEARD = (AttemptOutcome.NOT_SENT, AttemptOutcome.UNCERTAIN)


def _by_tool(grants: Sequence[Grant], reports: Sequence[Report]) -> Iterable[_Answers]:
    by_tool: dict[int, _Answers] = defaultdict(dict)
    for grant, report in zip(grants, reports, strict=True):
        if report.outcome in _UNHEARD and report.lookups and not report.sent:
            continue  # a look-up alone: what it cannot tell of one effect is no word on the sink's taking others
        by_tool[grant.tool_id][report.outcome] = grant, report
    return by_tool.values()
