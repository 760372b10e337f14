"""A line in the log for each grant and each end of an attempt: what links an agent's own trace to the operation.

Keys, tokens, outcomes and the proposal's ``trace_id``; never parameters, receipts or words of the agent's.
"""

import logging
from collections.abc import Sequence

from django.db import Error

from approvals import execution
from ledger.claims import Grant
from ledger.outcomes import Report

log = logging.getLogger(__name__)

_SENT = {True: "yes", False: "no", None: "unsaid"}


def granted(grants: Sequence[Grant], *, worker: str) -> None:
    """Says which operations the worker now has, under which tokens."""
    for each in grants:
        log.info(
            "granted key=%s tool=%s attempt=%d token=%d worker=%s",
            each.key,
            each.tool,
            each.number,
            each.token,
            worker,
        )


def ended(reports: Sequence[Report]) -> None:
    """Says what the attempts came to, with the trace of each one's proposal."""
    if not reports or not log.isEnabledFor(logging.INFO):
        return
    try:
        traces = execution.traces([each.subject for each in reports])
    except Error:  # a line without its trace is better than an outcome that waits for it
        traces = {}
    for each in reports:
        log.info(
            "ended key=%s tool=%s token=%d worker=%s outcome=%s state=%s sent=%s trace=%s",
            each.key,
            each.tool,
            each.token,
            each.worker,
            each.outcome,
            each.state,
            _SENT[each.sent],
            traces.get(each.subject, "-"),
        )
