"""Carrying out one grant: look before a repeat, check the clock last, send at most once, say what is known."""

import logging
import random
from dataclasses import dataclass

from django.conf import settings

from ledger.claims import Grant
from ledger.identity import canonical
from ledger.outcomes import Report
from ledger.states import AttemptOutcome, EnforcementClass, OperationState
from workers.connectors import UnknownConnector, connector
from workers.connectors.answers import (
    Absent,
    Answer,
    Busy,
    Connector,
    Fenced,
    Found,
    InProgress,
    NotSent,
    Receipt,
    Refused,
    Uncertain,
)
from workers.leases import Lease

log = logging.getLogger(__name__)

_MOST_IN_PROGRESS = 3
"""How often a sink may answer "in progress" before we say that we do not know."""
_MOST_REASON = 50
_MOST_ASKED = 3600.0
"""The longest a sink's Retry-After is honoured, in seconds: it may ask for a century."""
_MOST_NOTE = 500
_MOST_RECEIPT = 16_384  # characters; the sink's answer is evidence, not an archive


@dataclass(slots=True)
class _Done:
    """What was done under the grant, and what came of it."""

    answer: Answer
    sent: bool
    lookups: int


def perform(grant: Grant, lease: Lease, *, worker: str) -> Report:
    """Does what the grant allows and returns the report to record. Never raises: what is not known is Uncertain."""
    try:
        done = _act(grant, connector(grant.connector), lease)
    except UnknownConnector as error:  # nothing can have left; a worker of the right version will take it
        done = _Done(NotSent(str(error)), sent=False, lookups=0)
    except Exception as error:  # whatever broke, the request may have left before
        log.exception("operation %s: the connector raised", grant.key)
        done = _Done(Uncertain(f"The connector raised {type(error).__name__}: {error}"), sent=True, lookups=0)
    try:
        return _report(grant, done, worker)
    except Exception as error:  # an answer that no table here takes is an answer nobody knows
        log.exception("operation %s: the answer cannot be reported", grant.key)
        broken = Uncertain(f"The answer cannot be reported: {type(error).__name__}")
        return _report(grant, _Done(broken, sent=True, lookups=done.lookups), worker)


def _act(grant: Grant, sink: Connector, lease: Lease) -> _Done:
    lookups = 0
    if grant.maybe_sent:
        lookups = 1
        found = _look_up(grant, sink, lease)
        if not isinstance(found, Absent):
            return _Done(found, sent=False, lookups=lookups)
        if (why := _no_repeat(grant)) is not None:
            return _Done(Uncertain(why), sent=False, lookups=lookups)
    if not lease.holds():
        return _Done(
            NotSent("The lease was over before the request could leave."), sent=False, lookups=lookups
        )
    answer = sink.send(grant, timeout=lease.time_left)
    return _Done(answer, sent=not isinstance(answer, NotSent), lookups=lookups)


def _look_up(grant: Grant, sink: Connector, lease: Lease) -> Found:
    """Asks the sink; a look-up that breaks has sent nothing and proves nothing."""
    try:
        return sink.look_up(grant, timeout=max(lease.time_left, 0.001))
    except Exception as error:  # whatever broke, it is not known
        log.exception("operation %s: the look-up raised", grant.key)
        return Uncertain(f"The look-up raised {type(error).__name__}: {error}")


def _no_repeat(grant: Grant) -> str | None:
    """Why the same key may not be sent again after a look-up found nothing, or None."""
    if not grant.may_send:
        return "The sink shows no effect, and the approval no longer stands, so nothing is sent again."
    if grant.enforcement == EnforcementClass.OWNED_WRITE:
        return None
    if grant.answer_stored:
        return "The sink shows no effect, and keeps a failure under this key: a repeat would bring it again."
    if grant.key_window_left is None or grant.key_window_left < settings.EXECUTION.key_margin:
        return "The sink shows no effect, and its key window is over, so nothing is sent again."
    return None


def report_of(grant: Grant, answer: Answer, *, sent: bool, lookups: int, worker: str) -> Report:
    """The report on an answer that came to this grant some other way than by ``perform``."""
    return _report(grant, _Done(answer, sent=sent, lookups=lookups), worker)


def _report(grant: Grant, done: _Done, worker: str) -> Report:
    outcome, state, reason = _amounts_to(grant, done)
    receipt = done.answer if isinstance(done.answer, Receipt) else None
    note = None if receipt else _clean(_note(done.answer), _MOST_NOTE)
    return Report(
        order_id=grant.order_id,
        tenant_id=grant.tenant_id,
        key=grant.key,
        subject=grant.subject,
        tool=grant.tool,
        token=grant.token,
        worker=worker,
        outcome=outcome,
        state=state,
        wait=None if state in _FINAL else _wait(grant, done.answer),
        sent=done.sent,
        lookups=done.lookups,
        answer_stored=isinstance(done.answer, Uncertain) and done.answer.stored,
        reference=_clean(receipt.reference, 255) if receipt else None,
        receipt=_receipt_text(receipt) if receipt else None,
        reason=reason,
        note=note,
    )


_FINAL = (OperationState.COMMITTED, OperationState.FAILED_BEFORE_COMMIT)


def _amounts_to(grant: Grant, done: _Done) -> tuple[AttemptOutcome, OperationState, str | None]:
    """The table of docs/protocol.md, Perform: outcome of the attempt, state of the operation, reason."""
    unknown_already = grant.maybe_sent or grant.state == OperationState.OUTCOME_UNKNOWN
    unsent = OperationState.OUTCOME_UNKNOWN if unknown_already else OperationState.STARTED
    match done.answer:
        case Receipt():
            return AttemptOutcome.COMMITTED, OperationState.COMMITTED, None
        case NotSent():
            return AttemptOutcome.NOT_SENT, unsent, None
        case Busy():
            return AttemptOutcome.BUSY, unsent, None
        case InProgress():
            waiting = grant.state == OperationState.STARTED and grant.in_progress_count < _MOST_IN_PROGRESS
            state = OperationState.STARTED if waiting else OperationState.OUTCOME_UNKNOWN
            return AttemptOutcome.IN_PROGRESS, state, None if waiting else "in_progress"
        case Refused(reason=reason, final=final):
            if final or not grant.maybe_sent:
                return (
                    AttemptOutcome.REFUSED,
                    OperationState.FAILED_BEFORE_COMMIT,
                    _clean(reason, _MOST_REASON),
                )
            # It may be the echo of our own first success ("already refunded").
            return AttemptOutcome.REFUSED, OperationState.OUTCOME_UNKNOWN, "refused_on_repeat"
        case Fenced():
            return AttemptOutcome.UNCERTAIN, OperationState.OUTCOME_UNKNOWN, "fenced"
        case Uncertain():
            return AttemptOutcome.UNCERTAIN, OperationState.OUTCOME_UNKNOWN, "no_clear_answer"


def _wait(grant: Grant, answer: Answer) -> float:
    """Seconds until the next grant: doubled with each attempt, with jitter, at least what the sink asked for."""
    execution = settings.EXECUTION
    doubled = min(execution.backoff * 2 ** min(grant.number - 1, 20), execution.backoff_most)
    asked = answer.retry_after if isinstance(answer, Busy) and answer.retry_after else 0.0
    return max(float(doubled) * random.uniform(0.75, 1.25), min(asked, _MOST_ASKED))  # noqa: S311  spreads load


def _note(answer: Answer) -> str:
    if isinstance(answer, Receipt):
        return ""
    return answer.note


def _receipt_text(receipt: Receipt) -> str:
    """Canonical JSON of what the sink answered; a hostile or huge answer is stored as its beginning, in words."""
    try:
        text = canonical(
            {"reference": receipt.reference, "status": receipt.status, "answer": dict(receipt.answer)}
        )
    except Exception:  # an answer that is no clean JSON is still a receipt
        log.warning("the receipt %r is not canonical JSON", receipt.reference[:80], exc_info=True)
        text = ""
    if not text or len(text) > _MOST_RECEIPT or "\\u0000" in text or "\x00" in text:
        # Names are the sink's words, too.
        cut = {
            _clean(str(name), 50): _clean(str(value), 200)
            for name, value in list(receipt.answer.items())[:20]
        }
        text = canonical(
            {"reference": _clean(receipt.reference, 255), "status": _clean(receipt.status, 50), "answer": cut}
        )
    return text


def _clean(text: str, most: int) -> str:
    """Text that PostgreSQL stores: no U+0000, no lone surrogate, at most so many characters."""
    clean = (
        text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
        .encode("utf-8", "replace")
        .decode("utf-8", "replace")
    )
    return clean if len(clean) <= most else clean[: most - 1] + "…"
