"""Passes over a tool's ledger and sink: what range, where each goes on, what it found, what it may close.

The statements work on one page of either side. Who asks the sink and judges what it shows is ``workers``.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction

from accounts.sql import Queries
from ledger import clock, picks
from ledger.models import Finding, Reconciliation, Tool, ToolVersion
from ledger.states import FindingKind

QUERIES = Queries(Path(__file__).with_name("reconciliation.sql"))

REVIEW = timedelta(days=1)
"""So often all within the tool's retry horizon is looked through again: an effect may be reversed weeks later."""
GIVEN_UP = timedelta(days=1)
"""A pass that could not be finished for so long is ended unfinished, and its range begun anew."""
PAGE = 1000
_WHOLE_SECOND = timedelta(seconds=1)
"""Providers date their effects to whole seconds."""
_LISTED = "#"
_MOST_CURSOR = 499
_MOST_FORGOTTEN = 20_000


class Overtaken(Exception):
    """Another run goes on with this pass. Nothing of this page was written; there is nothing to do."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a sink's listing may be behind, and how far its clock may be from ours."""

    settle_time: timedelta
    longest_call: timedelta

    @property
    def youngest(self) -> timedelta:
        """What is younger may not be listed yet."""
        return self.settle_time + self.longest_call

    @property
    def overlap(self) -> timedelta:
        """A pass begins so long before the end of the last: longer than what the last one could not judge."""
        return 2 * self.youngest + 2 * self.longest_call + timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Found:
    """One disagreement. ``began`` and ``ended`` bound the time that has to be looked through to find it again."""

    kind: FindingKind
    about: str
    began: datetime
    ended: datetime
    subject: int | None = None
    order_id: int | None = None
    reference: str | None = None
    amount_minor: int | None = None
    currency: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


def begin(*, tool: Tool, lag: Lag, since: datetime | None = None) -> Reconciliation | None:
    """The pass to go on with: the tool's unfinished one, or a new one; None where nothing is old enough to judge.

    ``since`` asks for a new pass that reaches back so far at least.
    """
    unfinished = tool.reconciliations.filter(ended_at=None).order_by("-id").first()
    now = clock.now()
    if unfinished is not None:
        if since is None and unfinished.began_at > now - GIVEN_UP:
            return unfinished
        _end(unfinished, closed=0, error="It was not finished; its range is looked through by a later pass.")
    until = now - lag.youngest
    beginning = _beginning(tool, lag, now, until)
    if since is not None:
        beginning = min(beginning, since)
    if beginning >= until:
        return None
    return Reconciliation.objects.create(
        tenant_id=tool.tenant_id, tool=tool, since=beginning, until=until, cursor=""
    )


def _beginning(tool: Tool, lag: Lag, now: datetime, until: datetime) -> datetime:
    """From the last pass's end, with an overlap; once a day from as far back as anything may change."""
    newest = tool.versions.order_by("-number").first()
    first = tool.versions.order_by("number").first()
    if newest is None or first is None:
        return until
    tool_began = first.created_at - lag.longest_call - _WHOLE_SECOND
    reach = max(tool_began, now - newest.retry_horizon)
    whole = tool.reconciliations.filter(ended_at__isnull=False, error="")
    last = whole.order_by("-until").first()
    reviewed = whole.filter(began_at__gt=now - REVIEW, since__lte=reach).exists()
    if last is None or not reviewed:
        return reach
    since: datetime = max(reach, last.until - lag.overlap)
    return max(reach, min(since, _earliest_sent(tool, since, until)) - lag.longest_call - _WHOLE_SECOND)


def _earliest_sent(tool: Tool, since: datetime, until: datetime) -> datetime:
    row = QUERIES.rows("earliest_sent", tool=tool.pk, since=since, until=until)[0]
    return row.started_at or since


def has_looked(*, tool: Tool, back_to: datetime, after: datetime) -> bool:
    """Whether a pass that began after this moment, finished or still under way, reaches so far back."""
    return tool.reconciliations.filter(began_at__gt=after, since__lte=back_to, error="").exists()


def sink_cursor(row: Reconciliation) -> tuple[bool, str | None]:
    """Whether the sink's listing is still to be read, and from where."""
    if row.cursor.startswith(_LISTED):
        return False, None
    return True, row.cursor[1:] or None


def kin(tool: Tool, version: ToolVersion) -> list[int]:
    """The tenant's tools that act through the same connector: what they did is not foreign to this one."""
    same = Tool.objects.filter(tenant_id=tool.tenant_id, versions__connector=version.connector)
    return sorted({tool.pk, *same.values_list("pk", flat=True)})


def by_reference(tools: Collection[int], references: Collection[str]) -> dict[str, Any]:
    """{reference: the committed operation it is recorded under}."""
    rows = QUERIES.rows("by_reference", tools=list(tools), references=list(references)) if references else []
    return {row.reference: row for row in rows}


def by_key(keys: Collection[str]) -> dict[str, Any]:
    """{idempotency key: its operation}, whoever's it is."""
    rows = QUERIES.rows("by_key", keys=list(keys)) if keys else []
    return {row.key: row for row in rows}


def compared(
    row: Reconciliation,
    *,
    following: str | None,
    effects: int,
    seen: Collection[int],
    found: Sequence[Found],
    foreign: Mapping[date, Sequence[tuple[datetime, str]]],
) -> None:
    """Writes down what one page of the listing showed, and that it was compared. Raises Overtaken.

    The cases of the findings' subjects are locked by the caller, in this transaction. ``foreign``: when each effect
    that was never ours happened, and its reference, by its day (UTC).
    """
    opened = _find(row, found) + sum(_count(row, day, each) for day, each in sorted(foreign.items()))
    if seen:
        QUERIES.rows("see", reconciliation=row.pk, orders=sorted(seen))
    cursor = f">{following}" if following is not None else _LISTED
    if len(cursor) > _MOST_CURSOR:
        raise ValueError("The sink's cursor is longer than this ledger keeps.")
    _go_on(row, cursor, effects=effects, operations=0, opened=opened)


def look_again(orders: Collection[int]) -> None:
    """Makes unresolved operations due whose effect a listing has shown; a live grant is left alone."""
    picks.QUERIES.rows("make_due", orders=list(orders))


def unseen(row: Reconciliation, *, until: datetime) -> list[Any]:
    """The next page of committed operations: those that the listing has not shown, and the last one of the page."""
    after_at, after = _after(row)
    return QUERIES.rows(
        "unseen",
        tool=row.tool_id,
        reconciliation=row.pk,
        since=row.since,
        until=until,
        after_at=after_at,
        after=after,
        most=PAGE,
    )


def _after(row: Reconciliation) -> tuple[datetime, int]:
    at, _, order_id = row.cursor.removeprefix(_LISTED).partition("/")
    return (datetime.fromisoformat(at), int(order_id)) if at else (row.since, 0)


def looked_through(row: Reconciliation, page: Sequence[Any], found: Sequence[Found]) -> None:
    """Writes down what one page of the ledger showed. Raises Overtaken; the caller has locked as for ``compared``."""
    opened = _find(row, found)
    last = page[-1]
    cursor = f"{_LISTED}{last.settled_at.isoformat()}/{last.order_id}"
    _go_on(row, cursor, effects=0, operations=last.total, opened=opened)


def _go_on(row: Reconciliation, cursor: str, **counts: int) -> None:
    if not QUERIES.rows("go_on", reconciliation=row.pk, cursor=row.cursor, next=cursor, **counts):
        raise Overtaken
    row.cursor = cursor


def finish(row: Reconciliation, *, until: datetime) -> None:
    """Ends the pass and closes what it should have found again and did not. ``until``: as far as it has judged."""
    with transaction.atomic():
        because = f"Ledger and sink agree again: pass {row.pk} did not find it."
        closed = QUERIES.rows("close_agreed", reconciliation=row.pk, until=until, because=because)
        _end(row, closed=len(closed), error="")
    row.refresh_from_db()


def _end(row: Reconciliation, *, closed: int, error: str) -> None:
    """Ends it unless somebody has."""
    QUERIES.rows("end", reconciliation=row.pk, closed=closed, error=error)
    while len(QUERIES.rows("forget_sightings", tool=row.tool_id, most=_MOST_FORGOTTEN)) == _MOST_FORGOTTEN:
        pass


def attach(*, finding_id: int, subject: int) -> bool:
    """Ties an open finding that was about nobody to a subject; the caller holds its case. Returns whether it did."""
    lost = Finding.objects.filter(pk=finding_id, subject=None, closed_at=None)
    return lost.update(subject=subject) == 1


def stopped(row: Reconciliation, why: str) -> None:
    """Notes why the pass could not go on now. It stays where it is."""
    Reconciliation.objects.filter(pk=row.pk, ended_at=None).update(error=why[:500])


def still_open(*, tenant_id: UUID, tools: Iterable[int]) -> list[Any]:
    """What is open about these tools, by tool and kind; ``asking`` counts what waits for a person."""
    return QUERIES.rows("still_open", tenant=tenant_id, tools=list(tools))


def _find(row: Reconciliation, found: Sequence[Found]) -> int:
    """Opens or refreshes a finding for each matter; returns how many are new."""
    matters = {(each.kind, each.about): each for each in found}
    if not matters:
        return 0
    each = list(matters.values())
    rows = QUERIES.rows(
        "find",
        tenant=row.tenant_id,
        tool=row.tool_id,
        kinds=[one.kind.value for one in each],
        abouts=[one.about for one in each],
        subjects=[one.subject for one in each],
        orders=[one.order_id for one in each],
        references=[one.reference for one in each],
        amounts=[one.amount_minor for one in each],
        currencies=[one.currency for one in each],
        details=[json.dumps(_detail(one)) for one in each],
    )
    return sum(one.new for one in rows)


def _detail(found: Found) -> dict[str, Any]:
    return {**found.detail, "from": found.began.isoformat(), "to": found.ended.isoformat()}


def _count(row: Reconciliation, day: date, effects: Sequence[tuple[datetime, str]]) -> int:
    """Adds a day's foreign effects to their group, but for those that a person has seen to; returns if it is new."""
    about = f"{row.tool_id}:{day.isoformat()}"
    closed = QUERIES.rows("closed_groups", tenant=row.tenant_id, abouts=[about])
    fresh = [reference for at, reference in effects if not closed or at > closed[0].closed_at]
    if not fresh:
        return 0
    midnight = datetime.combine(day, time(), UTC)
    rows = QUERIES.rows(
        "count_foreign",
        tenant=row.tenant_id,
        tool=row.tool_id,
        about=about,
        reference=fresh[0],
        reconciliation=row.pk,
        count=len(fresh),
        detail=json.dumps({"from": midnight.isoformat(), "to": (midnight + timedelta(days=1)).isoformat()}),
    )
    return int(rows[0].new)
