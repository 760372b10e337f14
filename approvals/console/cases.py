"""Every case, whatever became of it; and the rows in which other lists show cases, too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from accounts.models import Agent
from approvals.console.entrance import Visitor, page
from approvals.console.lists import Filter, Query, Tab, choice, cut, in_words
from approvals.models import Case, Revision
from approvals.states import OPEN, CaseState
from ledger.models import Tool

VIEWS: Mapping[str, tuple[str, Sequence[CaseState]]] = {
    "": ("All", list(CaseState)),
    "open": ("Open", OPEN),
    "approved": ("Approved", [CaseState.APPROVED]),
    "executing": ("Executing", [CaseState.EXECUTING]),
    "executed": ("Executed", [CaseState.EXECUTED]),
    "unknown": ("Unknown", [CaseState.UNKNOWN]),
    "failed": ("Failed", [CaseState.FAILED]),
    "rejected": ("Rejected", [CaseState.REJECTED]),
    "over": ("Withdrawn or expired", [CaseState.WITHDRAWN, CaseState.EXPIRED]),
}


@page
def cases(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """The list, the newest first, by state, agent and tool."""
    query = Query.read(request.path, request.GET, "view", "agent", "tool")
    view = query["view"] if query["view"] in VIEWS else ""
    everything = filtered(Case.objects.filter(tenant_id=visitor.tenant_id), query)
    counts = _counts(everything)
    shown, page_ = cut(in_state(everything, VIEWS[view][1]).order_by("-pk"), query, total=counts[view])
    filters = case_filters(visitor, query)
    context = {
        "rows": records(shown),
        "page": page_,
        "views": [
            Tab(query.url(view=each), label, counts[each], current=each == view)
            for each, (label, _) in VIEWS.items()
        ],
        "view": view,
        "filters": filters,
        "clear_url": query.url(agent="", tool="") if in_words(filters) else "",
        "empty": _nothing(view, filters, query),
    }
    return render(request, "approvals/cases.html", context)


def in_state(rows: QuerySet[Case], states: Sequence[CaseState]) -> QuerySet[Case]:
    """The rows in one of these states; asked for all states, all rows."""
    return rows if len(states) == len(CaseState) else rows.filter(state__in=states)


def filtered(rows: QuerySet[Case], query: Query) -> QuerySet[Case]:
    """The rows of the query's agent and tool."""
    if query["agent"]:
        rows = rows.filter(agent__name=query["agent"])
    return rows.filter(action=query["tool"]) if query["tool"] else rows


def case_filters(visitor: Visitor, query: Query) -> list[Filter]:
    """Filters by agent and by tool, among those the organisation has."""
    agents = Agent.objects.filter(tenant_id=visitor.tenant_id).order_by("name")
    tools = Tool.objects.filter(tenant_id=visitor.tenant_id).order_by("name")
    return [
        choice(query, "agent", "Agent", list(agents.values_list("name", flat=True))),
        choice(query, "tool", "Tool", list(tools.values_list("name", flat=True))),
    ]


def _counts(rows: QuerySet[Case]) -> dict[str, int]:
    by_state: dict[str, int] = dict(rows.order_by().values_list("state").annotate(Count("pk")))
    return {view: sum(by_state.get(state, 0) for state in states) for view, (_, states) in VIEWS.items()}


def _nothing(view: str, filters: Sequence[Filter], query: Query) -> dict[str, str]:
    if on := in_words(filters):
        return {
            "title": "No case here",
            "words": f"Only cases of {on} are shown.",
            "clear_url": query.url(agent="", tool=""),
        }
    if view:
        return {"title": "No case here", "words": f"No case is {VIEWS[view][0].lower()} now."}
    return {
        "title": "No case yet",
        "words": "When an agent proposes an action over the API, its case appears here and in the review queue.",
    }


@dataclass(frozen=True, slots=True)
class Record:
    """One case as a row: what would happen, where it stands, since when. ``match`` says why a search found it."""

    case: Case
    url: str
    changed_at: datetime
    match: str = ""


def records(
    shown: Sequence[Case], *, origin: str = "", matches: Mapping[int, str] | None = None
) -> list[Record]:
    """Rows for the cases, in their order, in a fixed number of queries."""
    changed = Revision.objects.filter(case=OuterRef("pk"), number=OuterRef("revision")).values("at")
    rows = (
        Case.objects.select_related("agent", "proposal__policy")
        .annotate(changed_at=Subquery(changed))
        .in_bulk([each.pk for each in shown])
    )
    return [
        Record(
            case=rows[each.pk],
            url=address(each.pk, origin),
            changed_at=rows[each.pk].changed_at,
            match=(matches or {}).get(each.pk, ""),
        )
        for each in shown
    ]


def address(case_id: int, origin: str = "", **more: str) -> str:
    """A case's page; ``origin`` is the queue one comes from and goes back to."""
    query = "&".join([*([origin] if origin else []), *(f"{name}={value}" for name, value in more.items())])
    return reverse("case", args=[case_id]) + (f"?{query}" if query else "")
