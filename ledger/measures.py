"""The six measures that say whether the controls hold, and what stands beside them: counted from rows, per tenant.

Never from a process's own counters: a number is the same after a restart, and whoever asks. Each measure says when it
asks for a review, and whether it does now. Rates are judged by the last 24 hours, whatever window is shown.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db.models import Q

from accounts.sql import Queries
from ledger import clock
from ledger.models import Finding, Tool
from ledger.states import ControlEventKind, FindingKind, OperationState

QUERIES = Queries(Path(__file__).with_name("measures.sql"))

DAY = timedelta(days=1)
_LOOK_BACK = 8
"""Days of events that are read at least: the last one, and the seven it is compared with."""

DUPLICATES = (
    ControlEventKind.REPLAY,
    ControlEventKind.BUSINESS_DUPLICATE,
    ControlEventKind.FINGERPRINT_CONFLICT,
)
"""The same sent again, the same business action under another identity, other content under the same identity."""

MOST_TIMES_THE_MEAN = 2
FEWEST_DUPLICATES = 10
FEWEST_RETRIES = 20
MOST_CONFLICTS_OF_AN_ACTION = 5
MOST_CONFLICTS_OF_A_CASE = 2
MOST_FENCED_AN_HOUR = 3
"""A failover as tested lets each grant that was lost write late once, within one lease; it does not go on."""


@dataclass(frozen=True, slots=True)
class Window:
    """A length of time up to now, and the step in which its course is drawn."""

    name: str
    words: str
    length: timedelta
    step: timedelta

    @property
    def steps(self) -> int:
        """How many steps the window has."""
        return self.length // self.step

    @property
    def day_steps(self) -> int:
        """How many steps a day has."""
        return DAY // self.step


WINDOWS: Mapping[str, Window] = {
    each.name: each
    for each in (
        Window("24h", "24 hours", DAY, timedelta(hours=1)),
        Window("7d", "7 days", 7 * DAY, timedelta(hours=6)),
        Window("30d", "30 days", 30 * DAY, DAY),
    )
}


@dataclass(frozen=True, slots=True)
class Measure:
    """One of the six. ``course`` is oldest first; ``parts`` the count by source, action or the like, most first.

    ``triggered`` says what asks for a review now, in words; empty: nothing does. ``line`` is the trigger's height in
    ``course``, where a single step can show it. ``about``: the subject it is triggered by, if it is one.
    """

    name: str
    count: int
    course: Sequence[int]
    parts: Mapping[str, int]
    rule: str
    triggered: str = ""
    line: float | None = None
    about: int | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Operations whose outcome nobody knows now: how many, since when the oldest may have one, how many too long."""

    count: int
    oldest: datetime | None
    beyond: int


@dataclass(frozen=True, slots=True)
class Effects:
    """What the sinks themselves list. ``largest``: most effects of one identity; None: no sink was looked through."""

    largest: int | None
    seen: int
    operations: int


@dataclass(frozen=True, slots=True)
class Measures:
    """The six measures of one tenant in one window, with what stands beside them.

    ``exposure`` is money whose outcome is open, {currency: minor units}; ``settled`` {state: course, oldest first}.
    """

    window: Window
    until: datetime
    duplicates: Measure
    conflicts: Measure
    fenced: Measure
    serialization: Measure
    unknown: Measure
    effects: Measure
    exhausted: int
    unknowns: Unknown
    identity: Effects
    exposure: Mapping[str, int]
    oldest_due: datetime | None
    oldest_lapsed: datetime | None
    settled: Mapping[str, Sequence[int]]

    @property
    def six(self) -> list[Measure]:
        """The measures in the order in which they are always shown."""
        return [
            self.duplicates,
            self.conflicts,
            self.fenced,
            self.serialization,
            self.unknown,
            self.effects,
        ]


def measures(*, tenant_id: UUID, window: Window) -> Measures:
    """Counts everything for the tenant, from the window's beginning to now."""
    until = clock.now()
    events = _Events(tenant_id, window, until)
    tools = list(Tool.objects.filter(tenant_id=tenant_id).values_list("pk", flat=True))
    unresolved = QUERIES.rows("unresolved", tenant=tenant_id)
    unknown = [each for each in unresolved if each.state == OperationState.OUTCOME_UNKNOWN or each.silent]
    settled = _settled(tools, window, until)
    identity, effects = _effects(tenant_id, tools, window, until, settled[OperationState.COMMITTED])
    return Measures(
        window=window,
        until=until,
        duplicates=_duplicates(events),
        conflicts=_conflicts(events),
        fenced=_fenced(events),
        serialization=_serialization(events),
        unknown=_unknown(unknown, window, until),
        effects=effects,
        exhausted=sum(events.course(ControlEventKind.SERIALIZATION_EXHAUSTED)),
        unknowns=_unknowns(unknown),
        identity=identity,
        exposure=_exposure(unresolved),
        oldest_due=QUERIES.rows("oldest_due", tenant=tenant_id)[0].due_at,
        oldest_lapsed=min((each.due_at for each in unresolved if each.silent), default=None),
        settled=settled,
    )


# What the controls did.


@dataclass(slots=True)
class _Events:
    """The tenant's control events, counted by kind, source, action and age in steps of the window."""

    tenant_id: UUID
    window: Window
    until: datetime
    rows: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        back = max(self.window.length, _LOOK_BACK * DAY)
        step = self.window.step.total_seconds()
        self.rows = self.read("events", since=self.until - back, step=step)

    def read(self, name: str, *, since: datetime, **more: Any) -> list[Any]:
        return QUERIES.rows(name, tenant=self.tenant_id, since=since, until=self.until, **more)

    def course(self, *kinds: str) -> list[int]:
        counts: Counter[int] = Counter()
        for row in self.rows:
            if row.kind in kinds:
                counts[row.age] += row.n
        return _oldest_first(counts, self.window)

    def by(self, part: str, *kinds: str) -> dict[str, int]:
        """The counts of the window by ``source`` or ``action``, the largest first."""
        return self._counted(part, kinds, 0, self.window.steps)

    def last_day(self, part: str, *kinds: str) -> dict[str, int]:
        return self._counted(part, kinds, 0, self.window.day_steps)

    def daily_mean(self, part: str, *kinds: str) -> dict[str, float]:
        """Of the seven days before the last one."""
        days = self._counted(part, kinds, self.window.day_steps, _LOOK_BACK * self.window.day_steps)
        return {name: count / (_LOOK_BACK - 1) for name, count in days.items()}

    def _counted(self, part: str, kinds: Sequence[str], youngest: int, oldest: int) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for row in self.rows:
            if row.kind in kinds and youngest <= row.age < oldest:
                counts[getattr(row, part)] += row.n
        return dict(counts.most_common())


def _oldest_first(counts: Mapping[int, int], window: Window) -> list[int]:
    return [counts.get(age, 0) for age in reversed(range(window.steps))]


def _duplicates(events: _Events) -> Measure:
    day = events.last_day("source", *DUPLICATES)
    mean = events.daily_mean("source", *DUPLICATES)
    return Measure(
        name="duplicates",
        count=sum(events.course(*DUPLICATES)),
        course=events.course(*DUPLICATES),
        parts=events.by("source", *DUPLICATES),
        rule=(
            f"Review when a source has {FEWEST_DUPLICATES} or more in 24 h and more than"
            f" {MOST_TIMES_THE_MEAN} times its own daily mean of the seven days before."
        ),
        triggered=_risen(day, mean, fewest=FEWEST_DUPLICATES),
    )


def _risen(day: Mapping[str, int], mean: Mapping[str, float], *, fewest: int) -> str:
    """The part that has risen most above its own past, in words; empty where none has by enough."""
    risen = [
        name
        for name, count in day.items()
        if count >= fewest and count > MOST_TIMES_THE_MEAN * mean.get(name, 0.0)
    ]
    if not risen:
        return ""
    most = max(risen, key=lambda name: day[name] / mean[name] if mean.get(name) else inf)
    return f"{most} had {day[most]} in 24 h; its daily mean of the week before is {mean.get(most, 0.0):.1f}."


def _conflicts(events: _Events) -> Measure:
    kind = ControlEventKind.VERSION_CONFLICT
    triggered, about = _repeated(events)
    return Measure(
        name="conflicts",
        count=sum(events.course(kind)),
        course=events.course(kind),
        parts=events.by("action", kind),
        rule=(
            f"Review above {MOST_CONFLICTS_OF_AN_ACTION} in 24 h on one action,"
            f" or above {MOST_CONFLICTS_OF_A_CASE} on one case."
        ),
        triggered=triggered,
        about=about,
    )


def _repeated(events: _Events) -> tuple[str, int | None]:
    """Which step of the work keeps being decided on a stale state, in words, and the case it is, if it is one."""
    found = events.read("conflicts_by_subject", since=events.until - DAY)
    if found and found[0].n > MOST_CONFLICTS_OF_A_CASE:
        return f"One case of {found[0].action} had {found[0].n} in 24 h.", found[0].subject
    for action, count in events.last_day("action", ControlEventKind.VERSION_CONFLICT).items():
        if count > MOST_CONFLICTS_OF_AN_ACTION:
            return f"{action} had {count} in 24 h.", None
    return "", None


def _fenced(events: _Events) -> Measure:
    kind = ControlEventKind.FENCED_WRITE
    hours = {row.age: row.n for row in events.read("fenced_by_hour", since=events.until - DAY)}
    high = {age for age, count in hours.items() if count > MOST_FENCED_AN_HOUR}
    sustained = sorted(age for age in high if age + 1 in high)
    triggered = ""
    if sustained:
        worst = max(hours[age] for age in high)
        triggered = f"Two hours in a row were above {MOST_FENCED_AN_HOUR}; the highest had {worst}."
    return Measure(
        name="fenced",
        count=sum(events.course(kind)),
        course=events.course(kind),
        parts=events.by("source", kind),
        rule=f"Review above {MOST_FENCED_AN_HOUR} in each of two hours in a row: a tested failover ends sooner.",
        triggered=triggered,
        line=float(MOST_FENCED_AN_HOUR) if events.window.step == timedelta(hours=1) else None,
    )


def _serialization(events: _Events) -> Measure:
    kind = ControlEventKind.SERIALIZATION_RETRY
    exhausted = sum(events.course(ControlEventKind.SERIALIZATION_EXHAUSTED))
    day, mean = events.last_day("kind", kind), events.daily_mean("kind", kind)
    risen = _risen(day, mean, fewest=FEWEST_RETRIES).replace(kind, "All actions together")
    times = "once" if exhausted == 1 else f"{exhausted} times"
    used_up = f"All retries of a claim were used up {times}; it was put off, not lost." if exhausted else ""
    return Measure(
        name="serialization",
        count=sum(events.course(kind)),
        course=events.course(kind),
        parts=events.by("action", kind),
        rule=(
            f"Review when any claim used up its retries, or at {FEWEST_RETRIES} or more in 24 h and more than"
            f" {MOST_TIMES_THE_MEAN} times the daily mean of the seven days before."
        ),
        triggered=used_up or risen,
    )


# What is not settled.


def _since(row: Any) -> datetime:
    """Since when it may have happened; one that never left a worker's hands is silent since its lease ended."""
    since: datetime = row.since or row.due_at
    return since


def _unknowns(rows: Sequence[Any]) -> Unknown:
    return Unknown(
        count=len(rows),
        oldest=min(map(_since, rows), default=None),
        beyond=sum(row.now - _since(row) > row.objective for row in rows),
    )


def _unknown(rows: Sequence[Any], window: Window, until: datetime) -> Measure:
    beyond, oldest = _unknowns(rows).beyond, _unknowns(rows).oldest
    ages = Counter(max(0, (until - _since(row)) // window.step) for row in rows)
    age = f"{(until - oldest) // timedelta(minutes=1)} min" if oldest else ""
    words = (
        f"{beyond} {'is' if beyond == 1 else 'are'} older than the tool’s objective; the oldest is {age} old."
    )
    return Measure(
        name="unknown",
        count=len(rows),
        course=_oldest_first(ages, window),
        parts={},
        rule="Review when any is older than the objective of its tool.",
        triggered=words if beyond else "",
    )


def _exposure(rows: Iterable[Any]) -> dict[str, int]:
    money: Counter[str] = Counter()
    for row in rows:
        if row.currency:
            money[row.currency] += row.amount_minor
    return dict(sorted(money.items()))


# What came of it, by the ledger and by the sinks themselves.


def _settled(tools: Sequence[int], window: Window, until: datetime) -> dict[str, list[int]]:
    rows = QUERIES.rows("settled", tools=tools, **_range(window, until))
    courses = {}
    for state in (OperationState.COMMITTED, OperationState.FAILED_BEFORE_COMMIT):
        counts: Counter[int] = Counter()
        for row in rows:
            if row.state == state:
                counts[row.age] += row.n
        courses[state.value] = _oldest_first(counts, window)
    return courses


def _range(window: Window, until: datetime) -> dict[str, Any]:
    return {"since": until - window.length, "until": until, "step": window.step.total_seconds()}


def _effects(
    tenant_id: UUID, tools: Sequence[int], window: Window, until: datetime, committed: Sequence[int]
) -> tuple[Effects, Measure]:
    """Effects of one identity, as the sinks list them: what compensates an effect has an identity of its own."""
    passes = QUERIES.rows("passes", tools=tools, **_range(window, until))
    latest = {row.tool_id: row for row in passes}
    twice = _twice(tenant_id, since=until - window.length)
    largest = max((_times(each) for each in twice), default=1)
    looked_at = bool(passes or twice)
    course = _oldest_first(Counter(dict.fromkeys((row.age for row in passes), 1)), window)
    for each in twice:
        age = (until - each.opened_at) // window.step
        if age < window.steps:
            at = window.steps - 1 - age
            course[at] = max(course[at], _times(each))
    found = f"{len(twice)} {'identity has' if len(twice) == 1 else 'identities have'} more than one effect."
    identity = Effects(
        largest=largest if looked_at else None,
        seen=sum(row.effects for row in latest.values()),
        operations=sum(committed),
    )
    return identity, Measure(
        name="effects",
        count=largest if looked_at else 0,
        course=course,
        parts={},
        rule="Review at any value above 1, per idempotency key and per action, net of compensations.",
        triggered=found if twice else "",
        line=1.0,
    )


def _twice(tenant_id: UUID, *, since: datetime) -> list[Finding]:
    """Doubled effects that are open, however old, or were found in the window."""
    found = Finding.objects.filter(tenant_id=tenant_id, kind=FindingKind.TWICE)
    return list(found.filter(Q(closed_at=None) | Q(opened_at__gt=since)).order_by("pk"))


def _times(twice: Finding) -> int:
    told = twice.detail.get("effects") if isinstance(twice.detail, dict) else None
    return told if isinstance(told, int) and told > 1 else 2
