"""An operation as one line of time with two lanes: an attempt, and the one that took over from it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, zip_longest

from approvals.console.known import Known
from approvals.templatetags.states import words as in_plain_words
from approvals.templatetags.times import span
from ledger.models import Attempt, Attestation, Evidence
from ledger.states import AttemptOutcome, AttestedOutcome, OperationState


@dataclass(frozen=True, slots=True)
class Step:
    """One row. ``a`` and ``b`` are the lanes' rails there: from, on, to, lost, fence, or empty."""

    at: datetime | None
    plus: str
    words: str
    more: str = ""
    gap: bool = False
    a: str = ""
    b: str = ""
    mark: str = "dot"
    lane: str = "a"


def trace(known: Known, *, approvers: str, now: datetime, words: Sequence[Attestation] = ()) -> list[Step]:
    """The steps from the approval to what is known now. ``words``: what people have said of its outcome."""
    order = known.operation.order
    zero = known.started_at or order.created_at
    steps = [
        Step(
            order.created_at,
            elapsed(order.created_at - zero),
            f"Approved at revision {order.approved_revision}" + (f" by {approvers}" if approvers else ""),
            "The operation was written with it: not started.",
        )
    ]
    told = sorted(chain(_happenings(known, now), map(_said, words)), key=lambda each: (each.at, each.rank))
    steps += _drawn(told, zero)
    if known.state == OperationState.FAILED_BEFORE_COMMIT and not known.attempts:
        ended = known.operation.settled_at
        assert ended is not None
        reason = in_plain_words(known.operation.reason or "")
        steps.append(
            Step(ended, elapsed(ended - zero), f"Ended before it began: {reason}", mark=str(known.state))
        )
    return steps


@dataclass(frozen=True, slots=True)
class _Happening:
    """What happens in one lane: it begins, ends, falls silent, is taken from, or is refused at the fence.

    Without a ``rail`` it is beside the lanes: a person's word.
    """

    at: datetime
    rank: int
    lane: str
    rail: str
    step: Step


def _happenings(known: Known, now: datetime) -> Iterator[_Happening]:
    late = {each.token: each for each in known.evidence}
    for attempt, following in zip_longest(known.attempts, known.attempts[1:]):
        lane = "b" if attempt.number % 2 == 0 else "a"
        yield _begins(attempt, lane)
        if attempt.outcome == AttemptOutcome.SUPERSEDED and following is not None:
            yield _silence(attempt, following.started_at, lane, waits=attempt.token in late)
        elif attempt.ended_at is not None:
            yield _ends(attempt, lane)
        elif known.silent:
            assert known.operation.due_at is not None
            yield _silent_now(known.operation.due_at, lane, now)
        if attempt.token in late:
            yield _refused(late[attempt.token], known, lane)


def _begins(attempt: Attempt, lane: str) -> _Happening:
    did = "claimed it" if attempt.number == 1 else "took over"
    more = (
        "" if attempt.number == 1 else "An earlier attempt may have been sent, so it looks before it sends."
    )
    step = Step(
        attempt.started_at,
        "",
        f"{attempt.worker} {did}, token {attempt.token}",
        more,
        mark=OperationState.STARTED,
        lane=lane,
    )
    return _Happening(attempt.started_at, 2, lane, "from", step)


def _ends(attempt: Attempt, lane: str) -> _Happening:
    assert attempt.ended_at is not None
    said = f"Reported: {in_plain_words(attempt.outcome)}"
    tried = (
        "sent once" if attempt.sent else "sent nothing" if attempt.sent is False else "never said if it sent"
    )
    looked = (
        f"looked up {attempt.lookups} time{'' if attempt.lookups == 1 else 's'}, " if attempt.lookups else ""
    )
    more = f"It {looked}{tried}. {attempt.note or ''}".strip()
    mark = _MARKS.get(attempt.outcome or "", "dot")
    step = Step(attempt.ended_at, "", said, more, mark=mark, lane=lane)
    return _Happening(attempt.ended_at, 1, lane, "to", step)


_MARKS: dict[str, str] = {
    AttemptOutcome.COMMITTED: str(OperationState.COMMITTED),
    AttemptOutcome.REFUSED: str(OperationState.FAILED_BEFORE_COMMIT),
    AttemptOutcome.UNCERTAIN: str(OperationState.OUTCOME_UNKNOWN),
}


def _silence(attempt: Attempt, until: datetime, lane: str, *, waits: bool) -> _Happening:
    """Nothing was heard until the successor's grant; a lane that speaks once more is dotted until then."""
    length = span(until - attempt.started_at)
    words_ = f"Silence for {length}. The lease ran out, and the next worker was granted a higher token."
    return _Happening(
        until, 1, lane, "lost" if waits else "gone", Step(None, length, words_, gap=True, mark="", lane=lane)
    )


def _silent_now(since: datetime, lane: str, now: datetime) -> _Happening:
    length = span(max(now - since, timedelta(0)))
    words_ = f"Silence for {length} so far: the lease has run out, and no successor has begun."
    return _Happening(since, 1, lane, "lost", Step(None, length, words_, gap=True, mark="", lane=lane))


def _refused(late: Evidence, known: Known, lane: str) -> _Happening:
    reference = f", reference {late.reference}" if late.reference else ""
    step = Step(
        late.recorded_at,
        "",
        f"{late.worker}’s late report was refused: token {late.token} is older than {known.operation.token}",
        f"It said {in_plain_words(late.outcome)}{reference}. Kept as evidence, not as the outcome.",
        mark="fence",
        lane=lane,
    )
    return _Happening(late.recorded_at, 3, lane, "fence", step)


def _said(word: Attestation) -> _Happening:
    reference = f", reference {word.reference}" if word.reference else ""
    waits = word.token is None and word.testimony != AttestedOutcome.STILL_UNKNOWN
    waiting = " It waited for a second person." if waits else ""
    mark = _MARKS_OF_WORDS[word.testimony] if word.token is not None else "dot"
    said = f"{word.name} said: {in_plain_words(word.testimony)}{reference}"
    return _Happening(word.at, 4, "a", "", Step(word.at, "", said, f"{word.evidence}{waiting}", mark=mark))


_MARKS_OF_WORDS: dict[str, str] = {
    AttestedOutcome.HAPPENED: str(OperationState.COMMITTED),
    AttestedOutcome.DID_NOT_HAPPEN: str(OperationState.FAILED_BEFORE_COMMIT),
}


def _drawn(told: Sequence[_Happening], zero: datetime) -> Iterator[Step]:
    """The happenings as rows, each with the state of both lanes beside it."""
    rails = {"a": "", "b": ""}
    for each in told:
        if each.rail:  # a person's word changes no worker's lane
            rails[each.lane] = "lost" if each.rail in ("lost", "gone") else each.rail
        plus = each.step.plus if each.step.gap else elapsed(each.at - zero)
        yield replace(each.step, plus=plus, a=rails["a"], b=rails["b"])
        if each.rail:
            rails[each.lane] = _AFTER[each.rail]


_AFTER = {"from": "on", "to": "", "lost": "lost", "gone": "", "fence": ""}


def elapsed(length: timedelta) -> str:
    """Seconds from the first claim, to the millisecond: ``+0.029``, ``−30.284``."""
    seconds = length.total_seconds()
    if abs(seconds) < 0.0005:
        return "0.000"
    return f"{'+' if seconds > 0 else '−'}{abs(seconds):.3f}" if abs(seconds) < 3600 else span(abs(length))
