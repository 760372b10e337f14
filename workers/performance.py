"""Carrying out one grant: look before a repeat, check the clock last, send at most once, say what is known."""

import logging
import random
from dataclasses import dataclass

from django.conf import settings
from django.db import Error, close_old_connections

from ledger import halts
from ledger.claims import Grant
from ledger.identity import canonical
from ledger.outcomes import Report
from ledger.states import AttemptOutcome, FindingKind, OperationState
from workers.connectors import UnknownConnector, connector
from workers.connectors.answers import (
    Answer,
    Busy,
    Connector,
    Differs,
    Fenced,
    Found,
    InProgress,
    NotSent,
    Receipt,
    Refused,
    Uncertain,
    Undone,
)
from workers.leases import Lease
from workers.rules import Earlier, Known, before_send

log = logging.getLogger(__name__)

_MOST_IN_PROGRESS = 3
"""How often a sink may answer "in progress" before we say that we do not know."""
_MOST_REASON = 50
_MOST_ASKED = 3600.0
"""The longest a sink's Retry-After is honoured, in seconds: it may ask for a century."""
_MOST_NOTE = 500
_MOST_RECEIPT = 16_384  # characters; the sink's answer is evidence, not an archive


@dataclass(frozen=True, slots=True)
class _Done:
    """What was done under the grant, and what is known from it."""

    known: Known
    sent: bool
    lookups: int


@dataclass(slots=True)
class _Looks:
    """Asks the sink, and counts how often."""

    sink: Connector
    lease: Lease
    made: int = 0

    def __call__(self, grant: Grant) -> Found:
        """A look-up that breaks has sent nothing and proves nothing."""
        self.made += 1
        try:
            return self.sink.look_up(grant, timeout=max(self.lease.time_left, 0.001))
        except Exception as error:  # whatever broke, it is not known
            log.exception("operation %s: the look-up raised", grant.key)
            return Uncertain(f"The look-up raised {type(error).__name__}: {error}")


def perform(grant: Grant, lease: Lease, *, worker: str) -> Report:
    """Does what the grant allows and returns the report to record. Never raises: what is not known is Uncertain."""
    try:
        done = _act(grant, connector(grant.connector), lease)
    except UnknownConnector as error:  # nothing can have left; a worker of the right version will take it
        done = _Done(NotSent(str(error)), sent=False, lookups=0)
    except Exception as error:  # whatever broke, the request may have left before
        log.exception("operation %s: the connector raised", grant.key)
        done = _Done(Uncertain(f"The connector raised {type(error).__name__}: {error}"), sent=True, lookups=0)
    return _reported(grant, done, worker)


def _act(grant: Grant, sink: Connector, lease: Lease) -> _Done:
    looks = _Looks(sink, lease)
    known = before_send(grant, looks)
    if known is None and looks.made:  # time has passed since the claim saw that nothing stands still
        known = _standing_still(grant)
    if known is None and not lease.holds():
        known = NotSent("The lease was over before the request could leave.")
    if known is not None:
        return _Done(known, sent=False, lookups=looks.made)
    answer = sink.send(grant, timeout=lease.time_left)
    return _Done(answer, sent=not isinstance(answer, NotSent), lookups=looks.made)


def _standing_still(grant: Grant) -> NotSent | None:
    """Why nothing may leave now after all: somebody has halted the organisation or paused the tool."""
    try:
        why = halts.standstill([grant.tenant_id]).reason(tenant_id=grant.tenant_id, tool_id=grant.tool_id)
    except Error as error:
        close_old_connections()
        return NotSent(f"Whether anything is halted could not be asked: {error}")
    return None if why is None else NotSent(f"Nothing is sent while this stands still: {why}")


def report_of(grant: Grant, answer: Answer, *, sent: bool, lookups: int, worker: str) -> Report:
    """The report on an answer that came to this grant some other way than by ``perform``. Never raises, either."""
    return _reported(grant, _Done(answer, sent=sent, lookups=lookups), worker)


def _reported(grant: Grant, done: _Done, worker: str) -> Report:
    try:
        return _report(grant, done, worker)
    except Exception as error:  # an answer that no table here takes is an answer nobody knows
        log.exception("operation %s: the answer cannot be reported", grant.key)
        broken = Uncertain(f"The answer cannot be reported: {type(error).__name__}")
        return _report(grant, _Done(broken, sent=True, lookups=done.lookups), worker)


def _report(grant: Grant, done: _Done, worker: str) -> Report:
    outcome, state, reason = _amounts_to(grant, done.known)
    receipt = _receipt_of(done.known)
    note = None if isinstance(done.known, Receipt) else _clean(_note(done.known), _MOST_NOTE)
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
        wait=None if state in _FINAL else _wait(grant, done.known),
        sent=done.sent,
        lookups=done.lookups,
        answer_stored=isinstance(done.known, Uncertain) and done.known.stored,
        reference=_clean(receipt.reference, 255) if receipt else None,
        receipt=_receipt_text(receipt) if receipt else None,
        reason=reason,
        note=note,
        finding=_FINDINGS.get(type(done.known)),
        earlier=_earlier(done.known),
    )


def _receipt_of(known: Known) -> Receipt | None:
    """The receipt of this operation's own effect. That of an earlier one is that one's."""
    if isinstance(known, Differs | Undone):
        return known.receipt
    return known if isinstance(known, Receipt) else None


def _earlier(known: Known) -> tuple[str, str, str] | None:
    if not isinstance(known, Earlier):
        return None
    return known.key, _clean(known.receipt.reference, 255), _receipt_text(known.receipt)


_FINDINGS: dict[type, FindingKind] = {Differs: FindingKind.DIFFERS, Undone: FindingKind.REVERSED}
_FINAL = (OperationState.COMMITTED, OperationState.FAILED_BEFORE_COMMIT)


def _amounts_to(grant: Grant, known: Known) -> tuple[AttemptOutcome, OperationState, str | None]:
    """The table of docs/protocol.md, Perform: outcome of the attempt, state of the operation, reason."""
    unknown = OperationState.OUTCOME_UNKNOWN
    unknown_already = grant.maybe_sent or grant.state == unknown
    unsent = unknown if unknown_already else OperationState.STARTED
    match known:
        case Receipt():
            return AttemptOutcome.COMMITTED, OperationState.COMMITTED, None
        case NotSent():
            return AttemptOutcome.NOT_SENT, unsent, None
        case Busy():
            return AttemptOutcome.BUSY, unsent, None
        case InProgress():
            return _in_progress(grant)
        case Refused():
            return _refused(grant, known)
        case Earlier():
            # After a send of our own that may have arrived, two effects are possible: a person looks.
            failed = OperationState.FAILED_BEFORE_COMMIT
            return AttemptOutcome.REFUSED, unknown if grant.maybe_sent else failed, "earlier_effect"
    return AttemptOutcome.UNCERTAIN, unknown, _WHY_UNKNOWN.get(type(known), "no_clear_answer")


_WHY_UNKNOWN: dict[type, str] = {Fenced: "fenced", Differs: "differs", Undone: "undone"}


def _in_progress(grant: Grant) -> tuple[AttemptOutcome, OperationState, str | None]:
    if grant.state == OperationState.STARTED and grant.in_progress_count < _MOST_IN_PROGRESS:
        return AttemptOutcome.IN_PROGRESS, OperationState.STARTED, None
    return AttemptOutcome.IN_PROGRESS, OperationState.OUTCOME_UNKNOWN, "in_progress"


def _refused(grant: Grant, refused: Refused) -> tuple[AttemptOutcome, OperationState, str | None]:
    if refused.final or not grant.maybe_sent:
        reason = _clean(refused.reason, _MOST_REASON)
        return AttemptOutcome.REFUSED, OperationState.FAILED_BEFORE_COMMIT, reason
    # It may be the echo of our own first success ("already refunded").
    return AttemptOutcome.REFUSED, OperationState.OUTCOME_UNKNOWN, "refused_on_repeat"


def _wait(grant: Grant, known: Known) -> float:
    """Seconds until the next grant: doubled with each attempt, with jitter, at least what the sink asked for."""
    if isinstance(known, Uncertain) and known.wait is not None:
        return known.wait
    execution = settings.EXECUTION
    doubled = min(execution.backoff * 2 ** min(grant.number - 1, 20), execution.backoff_most)
    asked = known.retry_after if isinstance(known, Busy) and known.retry_after else 0.0
    return max(float(doubled) * random.uniform(0.75, 1.25), min(asked, _MOST_ASKED))  # noqa: S311  spreads load


def _note(known: Known) -> str:
    if isinstance(known, Receipt):
        return ""
    if isinstance(known, Earlier):
        return f"An earlier approval of this action has happened: {known.receipt.reference}."
    return known.note


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
