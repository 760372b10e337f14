"""Charts as the numbers an SVG is drawn with, in units of its own box. The template draws; nothing here is HTML."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 280.0, 44.0
"""The box of a tile's chart."""
_FOOT = 1.0
_SHORTEST = 1.5
"""A bar that counts anything is seen."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; ``over``: above the line of the trigger."""

    x: float
    y: float
    width: float
    height: float
    over: bool = False


@dataclass(frozen=True, slots=True)
class Course:
    """A row of bars on a ground line, with the trigger's line where a bar can show it."""

    bars: Sequence[Bar]
    line: float | None


def course(counts: Sequence[int], line: float | None) -> Course:
    """The bars of the counts, oldest first, scaled to the highest of them or to a little above the line."""
    top = max([*counts, (line or 0.0) * 1.25, 1.0])
    step, room = WIDTH / max(len(counts), 1), HEIGHT - 2 * _FOOT
    bars = [
        _bar(index * step, step * 0.75, count * room / top, over=line is not None and count > line)
        for index, count in enumerate(counts)
    ]
    return Course(
        bars=[bar for bar in bars if bar.height],
        line=None if line is None else round(HEIGHT - _FOOT - line * room / top, 1),
    )


def _bar(x: float, width: float, height: float, *, over: bool) -> Bar:
    height = max(height, _SHORTEST) if height else 0.0
    return Bar(round(x, 1), round(HEIGHT - _FOOT - height, 1), round(width, 1), round(height, 1), over)


@dataclass(frozen=True, slots=True)
class Piece:
    """One state's part of a column, by the state whose ink it is drawn in."""

    state: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of states one upon the other.

    ``scale``: (y of the line, y of its text, number); ``words`` under some columns: (x, word).
    """

    pieces: Sequence[Piece]
    scale: Sequence[tuple[float, float, int]]
    words: Sequence[tuple[float, str]]


_LEFT, _RIGHT, _TOP, _BOTTOM = 34.0, 760.0, 8.0, 162.0
_FIRST_WORD, _LAST_WORD = 74.0, 728.0
"""No word is centred further out: on a phone it would run into the scale's zero, or over the edge."""


def columns(states: Sequence[tuple[str, Sequence[int]]], words: Sequence[str]) -> Columns:
    """The columns of these courses, oldest first; ``words`` names each column, or is empty."""
    count = max((len(course) for _, course in states), default=0)
    totals = [sum(course[index] for _, course in states) for index in range(count)]
    tick = _tick(max([*totals, 1]))
    top = tick * max(1, -(-max([*totals, 1]) // tick))
    step, unit = (_RIGHT - _LEFT) / max(count, 1), (_BOTTOM - _TOP) / top
    pieces = []
    for index in range(count):
        y = _BOTTOM
        for state, course_ in states:
            height = course_[index] * unit
            if height:
                y -= height
                x = _LEFT + (index + 0.18) * step
                pieces.append(Piece(state, round(x, 1), round(y, 1), round(step * 0.64, 1), round(height, 1)))
    return Columns(
        pieces=pieces,
        scale=[
            (round(_BOTTOM - number * unit, 1), round(_BOTTOM - number * unit + 4, 1), number)
            for number in range(0, top + 1, tick)
        ],
        words=[
            (round(min(max(_LEFT + (index + 0.5) * step, _FIRST_WORD), _LAST_WORD), 1), word)
            for index, word in enumerate(words)
            if word
        ],
    )


def _tick(top: int) -> int:
    """A round distance that parts the scale in at most four."""
    size = 1
    while True:
        for each in (1, 2, 5):
            if each * size * 4 >= top:
                return each * size
        size *= 10
