"""The six measures as tiles: the number, what it is made of, what would ask for a review, and where the rows stand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse

from approvals.console import charts
from approvals.console.sources import source_in_words
from approvals.console.times import age
from ledger.measures import Measure, Measures, Window
from ledger.states import ControlEventKind, OperationState

_MOST_PARTS = 3


@dataclass(frozen=True, slots=True)
class Part:
    """What one source or action contributes, and where its rows stand."""

    name: str
    count: int
    url: str


@dataclass(frozen=True, slots=True)
class Words:
    """What a measure's tile says beside its number; ``small_url``: the rows of the small print, if it counts any."""

    number: str
    small: str
    says: str = ""
    small_url: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """One measure as it is drawn. ``url``: the rows its number counts; ``more``: how many parts are not named."""

    measure: Measure
    title: str
    words: Words
    url: str
    parts: Sequence[Part]
    more: int
    triggered: str
    case_url: str
    chart: charts.Course


_TITLES: Mapping[str, str] = {
    "duplicates": "Duplicate attempts and replays",
    "conflicts": "Version conflicts",
    "fenced": "Rejected fencing tokens",
    "serialization": "Serialization retries",
    "unknown": "Outcome unknown",
    "effects": "Effects per operation identity",
}
_KINDS: Mapping[str, str] = {
    "duplicates": "duplicates",
    "conflicts": ControlEventKind.VERSION_CONFLICT,
    "fenced": ControlEventKind.FENCED_WRITE,
    "serialization": ControlEventKind.SERIALIZATION_RETRY,
}
"""What the page of conflicts calls the events that a measure counts."""
_BY_SOURCE = ("duplicates", "fenced")


def tiles(found: Measures) -> list[Tile]:
    """All six, in their order."""
    return [_tile(each, found) for each in found.six]


def _tile(measure: Measure, found: Measures) -> Tile:
    return Tile(
        measure=measure,
        title=_TITLES[measure.name],
        words=_WORDS[measure.name](measure, found),
        url=_url(measure.name, found.window),
        parts=_parts(measure, found.window),
        more=max(0, len(measure.parts) - _MOST_PARTS),
        triggered=_triggered(measure),
        case_url=reverse("case", args=[measure.about]) if measure.about else "",
        chart=charts.course(measure.course, measure.line),
    )


def _url(name: str, window: Window) -> str:
    """Where the rows stand that a measure counts."""
    if name == "unknown":
        return f"{reverse('operations')}?view={OperationState.OUTCOME_UNKNOWN}"
    if name == "effects":
        return f"{reverse('conflicts')}?view=findings&kind=twice"
    return _events(window, kind=_KINDS[name])


def _events(window: Window, **filters: str) -> str:
    return f"{reverse('conflicts')}?{urlencode({'window': window.name, **filters})}"


def _parts(measure: Measure, window: Window) -> list[Part]:
    """The largest parts of a count, each with its rows."""
    part = "source" if measure.name in _BY_SOURCE else "action"
    return [
        Part(
            name=source_in_words(name).rstrip(",") if part == "source" else name,
            count=count,
            url=_events(window, kind=_KINDS[measure.name], **{part: name}),
        )
        for name, count in list(measure.parts.items())[:_MOST_PARTS]
    ]


def _triggered(measure: Measure) -> str:
    """The ledger names a source as its rows do; a reader knows it by name."""
    source, had, rest = measure.triggered.partition(" had ")
    return f"{source_in_words(source)}{had}{rest}" if had and ":" in source else measure.triggered


def _absorbed(measure: Measure, _: Measures) -> Words:
    return Words(str(measure.count), "absorbed")


def _prevented(measure: Measure, _: Measures) -> Words:
    return Words(str(measure.count), "prevented")


def _kept(measure: Measure, _: Measures) -> Words:
    says = "What they reported is kept as evidence." if measure.count else ""
    return Words(str(measure.count), f"fenced write{'' if measure.count == 1 else 's'}", says)


def _retried(measure: Measure, found: Measures) -> Words:
    url = _events(found.window, kind=ControlEventKind.SERIALIZATION_EXHAUSTED)
    return Words(str(measure.count), f"retried; all tries used up {found.exhausted}", small_url=url)


def _unknown(measure: Measure, found: Measures) -> Words:
    oldest = found.unknowns.oldest
    small = f"now, oldest {age(found.until - oldest)}" if oldest else "now"
    return Words(
        str(measure.count), small, "The bars show since when." if measure.count else "Every outcome is known."
    )


def _identity(_: Measure, found: Measures) -> Words:
    if found.identity.largest is None:
        return Words("–", "not measured", "No sink was looked through in this time, so nothing can be said.")
    says = (
        f"The sinks listed {found.identity.seen} effects at the last look; "
        f"{found.identity.operations} operations were committed in this time."
    )
    return Words(str(found.identity.largest), "largest", says)


_WORDS = {
    "duplicates": _absorbed,
    "conflicts": _prevented,
    "fenced": _kept,
    "serialization": _retried,
    "unknown": _unknown,
    "effects": _identity,
}
