"""What the controls did and what ledger and sinks disagree about: each row opens its case."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from approvals.console.entrance import Visitor, page
from approvals.console.history import control_in_words, finding_in_words
from approvals.console.lists import ROWS, Filter, Query, Tab, choice, cursor, in_words
from approvals.console.sources import source_in_words
from approvals.models import Case
from approvals.templatetags.states import words as in_plain_words
from ledger import clock
from ledger.measures import DUPLICATES, WINDOWS
from ledger.models import ControlEvent, Finding
from ledger.money import format_money
from ledger.states import ControlEventKind, FindingKind

_DEFAULT = "7d"
_EVER = "ever"
_MOST_SOURCES = 40
"""Sources one can choose among: those that were refused or answered most often."""

GROUPS: Mapping[str, Sequence[str]] = {
    "duplicates": DUPLICATES,
    "serialization": (ControlEventKind.SERIALIZATION_RETRY, ControlEventKind.SERIALIZATION_EXHAUSTED),
}
"""Kinds that one measure counts together."""
_GROUP_WORDS = {"duplicates": "All duplicates", "serialization": "All serialization"}


@page
def conflicts(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """Control events, or findings, by kind, source and action; the newest first."""
    query = Query.read(request.path, request.GET, "view", "window", "kind", "source", "action", "before")
    listed = _findings(visitor, query) if query["view"] == "findings" else _events(visitor, query)
    context = {
        **listed,
        "views": [
            Tab(
                f"{request.path}?window={query['window']}", "What the controls did", None, query["view"] == ""
            ),
            Tab(
                f"{request.path}?view=findings",
                "Ledger and sinks disagree",
                Finding.objects.filter(tenant_id=visitor.tenant_id, closed_at=None).count(),
                query["view"] == "findings",
            ),
        ],
        "view": query["view"],
    }
    return render(request, "approvals/conflicts.html", context)


@dataclass(frozen=True, slots=True)
class Row:
    """One event or finding: of which kind, whose doing in words, the case it is about, if it is about one.

    ``over``: a finding that is closed, and why. ``url``: where a finding stands with both sides, and is settled.
    """

    kind: str
    at: datetime
    who: str
    words: str
    action: str
    case: Case | None
    money: str = ""
    over: str = ""
    url: str = ""


# What the controls did.


def _events(visitor: Visitor, query: Query) -> dict[str, Any]:
    name = query["window"] if query["window"] in (*WINDOWS, _EVER) else _DEFAULT
    in_time = ControlEvent.objects.filter(tenant_id=visitor.tenant_id)
    if name != _EVER:
        in_time = in_time.filter(at__gt=clock.now() - WINDOWS[name].length)
    chosen = _of(in_time, query)
    kinds = _counts(chosen, "kind")
    wanted = _wanted(query["kind"])
    rows = _after(chosen.filter(kind__in=wanted) if wanted else chosen, query["before"])
    total = sum(kinds.get(each, 0) for each in wanted) if wanted else sum(kinds.values())
    filters = [
        _kinds(query, kinds),
        choice(query, "source", "Source", list(_counts(in_time, "source"))[:_MOST_SOURCES]),
        choice(query, "action", "Action", sorted(_counts(in_time, "action"))),
    ]
    return {
        "rows": _event_rows(visitor, rows[:ROWS]),
        "windows": _windows(query, name),
        "window": name,
        "filters": filters,
        "clear_url": _clear(query, filters),
        "count_words": f"{total} event{'' if total == 1 else 's'}",
        **_ends(query, rows),
        "empty": _nothing(query, filters),
    }


def _of(rows: QuerySet[ControlEvent], query: Query) -> QuerySet[ControlEvent]:
    if query["source"]:
        rows = rows.filter(source=query["source"])
    return rows.filter(action=query["action"]) if query["action"] else rows


def _wanted(kind: str) -> Sequence[str]:
    """The kinds of the filter; a kind that is none filters everything out."""
    return GROUPS.get(kind, [kind] if kind else [])


def _counts(rows: QuerySet[ControlEvent], part: str) -> dict[str, int]:
    found = rows.order_by().values_list(part).annotate(n=Count("pk")).order_by("-n", part)
    return dict(found)


def _after(rows: QuerySet[ControlEvent], before: str) -> list[ControlEvent]:
    """One row more than a page has, after the row of this number: by time, as the index has them."""
    if (pk := cursor(before)) is not None:
        last = rows.filter(pk=pk).values_list("at", flat=True).first()
        rows = (
            rows.none() if last is None else rows.filter(Q(at__lt=last) | Q(at=last, pk__lt=pk), at__lte=last)
        )
    return list(rows.order_by("-at", "-pk")[: ROWS + 1])


def _kinds(query: Query, counts: Mapping[str, int]) -> Filter:
    options = [
        {"value": kind, "label": f"{in_plain_words(kind).capitalize()} ({counts.get(kind, 0)})"}
        for kind in ControlEventKind.values
        if counts.get(kind) or kind == query["kind"]
    ]
    groups = [{"value": name, "label": words} for name, words in _GROUP_WORDS.items()]
    return Filter("kind", "Kind", query["kind"], [*groups, *options])


def _event_rows(visitor: Visitor, events: Sequence[ControlEvent]) -> list[Row]:
    cases = _cases(visitor, (each.subject for each in events))
    return [
        Row(
            kind=each.kind,
            at=each.at,
            who=source_in_words(each.source).rstrip(","),
            words=control_in_words(each),
            action=each.action,
            case=cases.get(each.subject) if each.subject else None,
        )
        for each in events
    ]


def _cases(visitor: Visitor, subjects: Iterable[int | None]) -> dict[int, Case]:
    wanted = {each for each in subjects if each is not None}
    rows = Case.objects.filter(tenant_id=visitor.tenant_id, pk__in=wanted)
    return {each.pk: each for each in rows.select_related("proposal")}


def _windows(query: Query, current: str) -> list[Tab]:
    words = {**{name: name.replace("h", " h").replace("d", " d") for name in WINDOWS}, _EVER: "Ever"}
    return [
        Tab(query.url(window=name, before=""), label, None, name == current) for name, label in words.items()
    ]


# What ledger and sinks disagree about.


def _findings(visitor: Visitor, query: Query) -> dict[str, Any]:
    everything = Finding.objects.filter(tenant_id=visitor.tenant_id)
    if query["action"]:
        everything = everything.filter(tool__name=query["action"])
    counts = dict(everything.order_by().values_list("kind").annotate(Count("pk")))
    rows = everything.filter(kind=query["kind"]) if query["kind"] else everything
    total = counts.get(query["kind"], 0) if query["kind"] else sum(counts.values())
    if (pk := cursor(query["before"])) is not None:
        rows = rows.filter(pk__lt=pk)
    found = list(rows.select_related("tool", "operation__tool").order_by("-pk")[: ROWS + 1])
    options = [
        {"value": kind, "label": f"{in_plain_words(kind).capitalize()} ({counts.get(kind, 0)})"}
        for kind in FindingKind.values
    ]
    filters = [Filter("kind", "Kind", query["kind"], options)]
    return {
        "rows": _finding_rows(visitor, found[:ROWS]),
        "windows": [],
        "window": "",
        "filters": filters,
        "clear_url": _clear(query, filters),
        "count_words": f"{total} finding{'' if total == 1 else 's'}",
        **_ends(query, found),
        "empty": _nothing(query, filters),
    }


def _finding_rows(visitor: Visitor, findings: Sequence[Finding]) -> list[Row]:
    cases = _cases(visitor, (each.subject for each in findings))
    return [
        Row(
            kind=each.kind,
            at=each.opened_at,
            who="Ledger and sink",
            words=finding_in_words(each.kind),
            action=_tool_of(each),
            case=cases.get(each.subject) if each.subject else None,
            money=_money(each),
            over=_over(each),
            url=f"{reverse('reconcile')}?view=findings&item={each.pk}",
        )
        for each in findings
    ]


def _tool_of(finding: Finding) -> str:
    tool = finding.tool or (finding.operation.tool if finding.operation else None)
    return tool.name if tool else ""


def _money(finding: Finding) -> str:
    if finding.amount_minor is None or finding.currency is None:
        return ""
    return format_money(finding.amount_minor, finding.currency)


def _over(finding: Finding) -> str:
    if finding.closed_at is None:
        return ""
    because = f": {finding.closed_because}" if finding.closed_because else ""
    return f"settled by {source_in_words(finding.closed_by or '')}{because}"


# What both lists share.


def _ends(query: Query, rows: Sequence[ControlEvent | Finding]) -> dict[str, str]:
    """Where the list goes on, and where it began."""
    more = len(rows) > ROWS
    return {
        "older_url": query.url(before=str(rows[ROWS - 1].pk)) if more else "",
        "newest_url": query.url(before="") if query["before"] else "",
    }


def _clear(query: Query, filters: Sequence[Filter]) -> str:
    return query.url(kind="", source="", action="", before="") if in_words(filters) else ""


def _nothing(query: Query, filters: Sequence[Filter]) -> dict[str, str]:
    clear_url = _clear(query, filters)
    if on := in_words(filters):
        return {"title": "Nothing here", "words": f"Only what fits {on} is shown.", "clear_url": clear_url}
    if query["view"] == "findings":
        return {
            "title": "Ledger and sinks agree",
            "words": "What a reconciliation or a late report finds to disagree is kept here, also once it is settled.",
        }
    return {
        "title": "Nothing was refused or absorbed",
        "words": "Repeats, stale decisions and old workers’ writes appear here, each counted by its source.",
    }
