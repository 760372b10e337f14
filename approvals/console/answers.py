"""The two answers an operator needs about an operation: what is known, and whether it is safe to send it again."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from approvals.console.known import Known
from approvals.console.sources import worker_named
from approvals.templatetags.states import words
from approvals.templatetags.times import zoned
from ledger.models import Attempt
from ledger.states import NEVER_SENT, AttemptOutcome, EnforcementClass, OperationState


@dataclass(frozen=True, slots=True)
class Answer:
    """A heading, and the reason under it."""

    short: str
    why: str


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the answers are computed from.

    ``standing``: the approval still allows a send; ``still``: a halt or a pause allows none now; ``twice``: an open
    finding says that the sink shows the effect twice.
    """

    known: Known
    now: datetime
    standing: bool
    still: bool = False
    twice: bool = False

    @property
    def last(self) -> Attempt | None:
        """The newest attempt."""
        return self.known.attempts[-1] if self.known.attempts else None

    @property
    def due_at(self) -> datetime:
        """When the next grant may be given, or the lease ends."""
        due = self.known.operation.due_at
        assert due is not None  # settled_iff_settled_at: asked only of what is not settled
        return due

    @property
    def held(self) -> bool:
        """Whether a worker holds a lease that still runs."""
        return self.known.operation.worker is not None and self.due_at > self.now

    @property
    def set_aside(self) -> bool:
        """Whether no worker takes it by itself any more."""
        return self.known.operation.reason == "set_aside"

    @property
    def maybe_sent(self) -> bool:
        """Whether any attempt may have reached the sink."""
        return any(_may_have_sent(each) for each in self.known.attempts)

    @property
    def reported_late(self) -> str:
        """The worker that reported an effect after it had lost its lease, if one did."""
        late = [each for each in self.known.evidence if each.outcome == AttemptOutcome.COMMITTED]
        return late[-1].worker if late else ""

    @property
    def key_good_until(self) -> datetime | None:
        """Until when a repeat with the same key may leave; None where the tool has no such window."""
        window = self.known.operation.order.tool_version.key_window
        first = next((each for each in self.known.attempts if each.outcome not in NEVER_SENT), None)
        if window is None or first is None:
            return None
        return first.started_at + window - timedelta(seconds=settings.EXECUTION.key_margin)


def _may_have_sent(attempt: Attempt) -> bool:
    return attempt.sent is not False and attempt.outcome not in NEVER_SENT


# What is known.


def what_is_known(here: Circumstances) -> Answer:
    """One of the four answers, and how it is known."""
    match here.known.state:
        case OperationState.NOT_STARTED:
            return Answer("Not started", _waiting(here))
        case OperationState.COMMITTED:
            return Answer(
                "It happened more than once" if here.twice else "It happened, once", _committed(here)
            )
        case OperationState.FAILED_BEFORE_COMMIT:
            return Answer("It did not happen", _failed(here))
        case OperationState.STARTED if not here.known.lease_over:
            return _started(here)
    return Answer(_NOT_KNOWN, _unknown(here))


_NOT_KNOWN = "We do not know if it happened"


def _waiting(here: Circumstances) -> str:
    if here.known.waits_for or here.known.wait:  # the page goes on to say what it waits for, with a link
        return "Nothing has been sent."
    if here.due_at > here.now:
        return f"Nothing has been sent. Something it needs is not free; it is looked at again at {_time(here.due_at)}."
    return "Nothing has been sent. The next free worker takes it."


def _started(here: Circumstances) -> Answer:
    worker, last = here.known.operation.worker, here.last
    if worker is not None:
        return Answer(
            "Being done now",
            f"{worker_named(worker)} holds token {here.known.operation.token} until {_time(here.due_at)}. "
            "It has not reported yet.",
        )
    told = f" It said: {last.note}" if last and last.note else ""
    if last and last.outcome == AttemptOutcome.IN_PROGRESS:
        return Answer("Being done now", f"The sink answered that this key is being processed.{told}")
    return Answer(
        "Not sent yet", f"The last attempt sent nothing; the next one is due at {_time(here.due_at)}.{told}"
    )


def _committed(here: Circumstances) -> str:
    receipt = here.known.receipt
    reference = f" {receipt.reference}" if receipt else ""
    told = f"The receipt{reference} is stored, and every later call with this key is answered with it."
    return f"The sink shows another effect of it. {told}" if here.twice else told


def _failed(here: Circumstances) -> str:
    reason = words(here.known.operation.reason or "no reason given")
    if not here.known.attempts:
        return f"It was ended before any worker took it: {reason}. Nothing was ever sent."
    if not here.maybe_sent:
        return f"It was stopped, and no attempt had sent anything: {reason}."
    return f"The sink refused it: {reason}."


def _unknown(here: Circumstances) -> str:
    if here.set_aside:
        return "Too many workers fell silent over it, so no worker takes it by itself again. A person has to look."
    told = [_silence(here) or _last_word(here)]
    if worker := here.reported_late:
        told.append(
            f"{worker_named(worker)} reported success later, when it no longer owned the operation: "
            "its word is kept as evidence, not as the outcome."
        )
    return " ".join(told)


def _silence(here: Circumstances) -> str:
    if not here.known.silent:
        return ""
    return (
        f"Its worker has been silent since {_time(here.due_at)}, when {here.known.operation.worker}’s lease ran out. "
        "The next worker takes over under a higher token, and looks before it sends."
    )


def _last_word(here: Circumstances) -> str:
    closed = [each for each in here.known.attempts if each.outcome is not None]
    last = closed[-1] if closed else None
    said = f"Attempt {last.number} ended without a clear answer" if last else "Nobody has reported"
    note = f": {last.note}" if last and last.note else "."
    return f"{said}{note}" if note.endswith((".", "!", "?")) else f"{said}{note}."


# Is it safe to send again?


def is_it_safe(here: Circumstances) -> Answer:
    """Yes, no or not needed, with the reason; the workers go by the same rules."""
    match here.known.state:
        case OperationState.NOT_STARTED:
            return Answer("Not needed.", "It has not been sent a first time.")
        case OperationState.COMMITTED:
            return Answer(
                "Not needed.", "A repeat would be answered with the stored receipt; nothing would be sent."
            )
        case OperationState.FAILED_BEFORE_COMMIT:
            return Answer(
                "Not under this key.",
                "The sink may have stored the failure under it. A new approval is a new intent, with a new key.",
            )
    return _safe_while_open(here)


def _safe_while_open(here: Circumstances) -> Answer:
    if here.held:
        worker = here.known.operation.worker
        return Answer("No, not now.", f"{worker_named(worker)} is at it until {_time(here.due_at)}.")
    if here.set_aside:
        return Answer("No.", "It may be what silenced its workers. Look at the sink first.")
    if here.still:
        return Answer(
            "No, not now.", "Its tool or the whole organisation stands still: it is only looked up."
        )
    if here.reported_late:
        return Answer(
            "No, not now.", f"A late report says that it happened. It is looked up first, {_next(here)}."
        )
    if here.last and here.last.outcome == AttemptOutcome.IN_PROGRESS:
        return Answer("No, not now.", f"The sink is still processing this key. We ask again {_next(here)}.")
    if not here.standing:
        return Answer("No.", "The approval no longer stands, so nothing is sent; it is only looked up.")
    if not here.maybe_sent:
        return Answer("Yes.", f"No attempt has sent anything. The same key is sent {_next(here)}, by itself.")
    return _safe_by_class(here)


_NEVER_REPEATED: Mapping[EnforcementClass, str] = {
    EnforcementClass.NONE: (
        "Nothing at the sink keeps a second send from happening twice, and nothing there tells whether the first "
        "one did. Only a person can settle it."
    ),
    EnforcementClass.NATURAL_REFERENCE: (
        "What may have been sent is read back at the sink by its reference, and not sent again. "
        "Only a look-up or a person can settle it."
    ),
}
"""Why a sink that keeps no key of ours is not sent the same a second time."""


def _safe_by_class(here: Circumstances) -> Answer:
    version = here.known.operation.order.tool_version
    if version.enforcement == EnforcementClass.OWNED_WRITE:
        return Answer(
            "Yes.",
            "The database that owns the effect checks key, content and token in one transaction: "
            f"what is done already is answered, not done again. That happens {_next(here)}, by itself.",
        )
    if version.enforcement in _NEVER_REPEATED:
        return Answer("No.", _NEVER_REPEATED[EnforcementClass(version.enforcement)])
    if any(each.answer_stored for each in here.known.attempts):
        return Answer(
            "No.",
            "The sink keeps a failure under this key and would answer with it again. "
            "Only a look-up or a person can settle it.",
        )
    until = here.key_good_until
    if until is None or until <= here.now:
        closed = f" closed at {_time(until)}" if until else " is not known"
        return Answer(
            "No.",
            f"The window in which the provider keeps the key{closed}. Only a look-up or a person can settle it.",
        )
    return Answer(
        "Yes, with the same key.",
        f"Until {_time(until)} the provider answers a repeated key with its first result. "
        f"It is looked up first, {_next(here)}, by itself.",
    )


def _next(here: Circumstances) -> str:
    return "at once" if here.due_at <= here.now else f"at {_time(here.due_at)}"


def _time(at: datetime) -> str:
    return zoned(at, "seconds")
