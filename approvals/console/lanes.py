"""The attempts of an operation drawn to scale: who held the lease when, where the fence rose, what it refused.

Only numbers for SVG attributes; the words stand in the template. The timeline below says the same as text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from approvals.console.known import Known
from approvals.templatetags.states import words
from ledger.models import Attempt
from ledger.states import AttemptOutcome, OperationState

WIDTH, LEFT, RIGHT = 660, 104, 60
"""Units of the drawing: its whole width, and what names and ends keep free."""
ROW, TOP, BAR = 58, 22, 18
"""Height of a lane, the space over the first, and the height of a bar."""
FOOT = 44
"""Space under the last lane, for the scale."""
_MOST = 6
"""Lanes drawn; with more, the newest."""
_THINNEST = 3.0
"""A bar stays visible, however short the attempt."""
_TICKS = 5

Place = Callable[[datetime], float]


@dataclass(frozen=True, slots=True)
class Lane:
    """One attempt: its bar, and, where it reported too late, how far the dotted line runs until it is refused."""

    worker: str
    token: int
    y: float
    x: float
    width: float
    state: str
    ended: str
    late_x: float | None

    @property
    def middle(self) -> float:
        """The height of the bar's middle."""
        return self.y + BAR / 2

    @property
    def end(self) -> float:
        """Where the bar ends."""
        return round(self.x + self.width, 1)


@dataclass(frozen=True, slots=True)
class Fence:
    """Raised by a take-over: from its start on, nothing under an older token is accepted."""

    x: float
    y: float
    length: float
    token: int

    @property
    def is_near_the_end(self) -> bool:
        """Whether its words would leave the picture on the right, and stand on its left instead."""
        return self.x > WIDTH * 0.6


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of the scale."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """The whole chart."""

    lanes: Sequence[Lane]
    fences: Sequence[Fence]
    ticks: Sequence[Tick]
    height: int
    width: int = WIDTH
    bar: int = BAR


def draw(known: Known, now: datetime) -> Drawing | None:
    """The chart; None for a single attempt that reported, which needs no picture."""
    if len(known.attempts) < 2 and not known.silent:
        return None
    shown = list(known.attempts)[-_MOST:]
    zero = shown[0].started_at
    ends = [each.ended_at or now for each in shown]
    length = max((max([*ends, *(each.recorded_at for each in known.evidence)]) - zero).total_seconds(), 0.001)

    def place(at: datetime) -> float:
        seconds = max((at - zero).total_seconds(), 0.0)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * min(seconds / length, 1.0), 1)

    lanes = [_lane(attempt, TOP + ROW * row, known, place, now) for row, attempt in enumerate(shown)]
    return Drawing(
        lanes=lanes,
        fences=[Fence(each.x, each.y - 18, WIDTH - RIGHT - each.x, each.token) for each in lanes[1:]],
        ticks=[
            Tick(
                place(zero + timedelta(seconds=length * at / _TICKS)), _seconds(length * at / _TICKS, length)
            )
            for at in range(_TICKS + 1)
        ],
        height=TOP + ROW * (len(lanes) - 1) + BAR + FOOT,
    )


def _lane(attempt: Attempt, y: float, known: Known, place: Place, now: datetime) -> Lane:
    start = place(attempt.started_at)
    late = next((each for each in known.evidence if each.token == attempt.token), None)
    return Lane(
        worker=attempt.worker,
        token=attempt.token,
        y=y,
        x=start,
        width=max(round(place(attempt.ended_at or now) - start, 1), _THINNEST),
        state=_state(attempt, known),
        ended=_ended(attempt, known),
        late_x=place(late.recorded_at) if late else None,
    )


def _state(attempt: Attempt, known: Known) -> str:
    if attempt.ended_at is None and known.silent:
        return OperationState.OUTCOME_UNKNOWN
    return _STATES.get(attempt.outcome or "", OperationState.STARTED)


_STATES: dict[str, str] = {
    AttemptOutcome.COMMITTED: OperationState.COMMITTED,
    AttemptOutcome.REFUSED: OperationState.FAILED_BEFORE_COMMIT,
    AttemptOutcome.UNCERTAIN: OperationState.OUTCOME_UNKNOWN,
    AttemptOutcome.NOT_SENT: OperationState.NOT_STARTED,
    AttemptOutcome.BUSY: OperationState.NOT_STARTED,
}


def _ended(attempt: Attempt, known: Known) -> str:
    if attempt.outcome == AttemptOutcome.SUPERSEDED:
        return "silent"
    if attempt.outcome:
        return words(attempt.outcome)
    return "silent" if known.silent else "at it now"


def _seconds(value: float, length: float) -> str:
    if length < _TICKS / 10:
        return f"{value * 1000:.0f} ms"
    return f"{value:.0f} s" if length >= 2 * _TICKS else f"{value:.1f} s"
