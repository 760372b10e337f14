"""The ledger's list: every approved intent and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from approvals.console.budgets import period_begins
from approvals.console.cases import case_filters
from approvals.console.entrance import Visitor, page
from approvals.console.known import LEASE_OVER, UNKNOWN, Known, known, of_tenant
from approvals.console.lists import Filter, Query, Tab, cursor, cut, in_words
from approvals.models import Case
from ledger import clock
from ledger.measures import WINDOWS
from ledger.models import Budget, Operation, Reservation
from ledger.money import format_money
from ledger.states import UNRESOLVED, OperationState

VIEWS: Mapping[str, tuple[str, Q]] = {
    "": ("All", Q()),
    OperationState.NOT_STARTED: ("Not started", Q(state=OperationState.NOT_STARTED)),
    OperationState.STARTED: ("Started", Q(state=OperationState.STARTED) & ~LEASE_OVER),
    OperationState.COMMITTED: ("Committed", Q(state=OperationState.COMMITTED)),
    OperationState.FAILED_BEFORE_COMMIT: (
        "Failed before commit",
        Q(state=OperationState.FAILED_BEFORE_COMMIT),
    ),
    OperationState.OUTCOME_UNKNOWN: ("Unknown", UNKNOWN),
}
"""The tabs: each state as an operator reads it, so that a silent worker's operation stands under unknown."""


_FILTERS = ("agent", "tool", "key", "reference", "settled", "budget")
_HELD = "-held"
"""Ends a budget's number where only open reservations are meant."""
_NOT_SETTLED = "no"
_SETTLED = [
    *({"value": each.name, "label": f"in the last {each.words}"} for each in WINDOWS.values()),
    {"value": _NOT_SETTLED, "label": "not settled"},
]


@page
def operations(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """The list, the newest first, by state, tool, agent, key and reference."""
    query = Query.read(request.path, request.GET, "view", *_FILTERS)
    view = query["view"] if query["view"] in VIEWS else ""
    everything = _filtered(of_tenant(visitor.tenant_id), visitor, query)
    counts = _counts(everything)
    rows = everything.filter(VIEWS[view][1]).order_by("-order_id")
    shown, page_ = cut(rows, query, total=counts[view])
    filters = [
        *case_filters(visitor, query),
        Filter("key", "Key", query["key"]),
        Filter("reference", "Reference", query["reference"]),
        Filter("settled", "Settled", query["settled"], _SETTLED),
        *_of_budget(visitor, query),
    ]
    clear_url = query.url(**dict.fromkeys(_FILTERS, "")) if in_words(filters) else ""
    context = {
        "rows": _rows(shown),
        "page": page_,
        "views": [
            Tab(query.url(view=each), label, counts[each], current=each == view, state=each)
            for each, (label, _) in VIEWS.items()
        ],
        "view": view,
        "filters": filters,
        "clear_url": clear_url,
        "count_words": f"{counts[view]} operation{'' if counts[view] == 1 else 's'}",
        "empty": _nothing(view, filters, clear_url),
    }
    return render(request, "approvals/operations.html", context)


def _filtered(rows: QuerySet[Operation], visitor: Visitor, query: Query) -> QuerySet[Operation]:
    if query["tool"]:
        rows = rows.filter(tool__name=query["tool"])
    if query["key"]:
        rows = rows.filter(order__key__startswith=query["key"].lower())
    its_case = Case.objects.filter(tenant_id=visitor.tenant_id, pk=OuterRef("order__subject"))
    if query["agent"]:
        rows = rows.filter(Exists(its_case.filter(agent__name=query["agent"])))
    if query["reference"]:
        of_case = Case.objects.filter(tenant_id=visitor.tenant_id, reference=query["reference"])
        rows = rows.filter(Q(order__subject__in=of_case.values("pk")) | Q(reference=query["reference"]))
    if query["settled"] in WINDOWS:
        rows = rows.filter(settled_at__gt=clock.now() - WINDOWS[query["settled"]].length)
    if query["settled"] == _NOT_SETTLED:
        rows = rows.filter(state__in=UNRESOLVED)
    if query["budget"]:
        rows = rows.filter(Exists(_counted_by(visitor, query["budget"])))
    return rows


def _counted_by(visitor: Visitor, name: str) -> QuerySet[Reservation]:
    """An operation's reservation in the present period of the organisation's budget of this number."""
    budget = _budget(visitor, name)
    if budget is None:
        return Reservation.objects.none()
    begins_on = period_begins(budget.span, clock.now())
    counted = Reservation.objects.filter(
        operation=OuterRef("pk"), period__budget=budget, period__begins_on=begins_on
    )
    return counted.filter(consumed=None) if name.endswith(_HELD) else counted


def _budget(visitor: Visitor, name: str) -> Budget | None:
    if (pk := cursor(name.removesuffix(_HELD))) is None:
        return None
    return Budget.objects.filter(tenant_id=visitor.tenant_id, pk=pk).first()


def _of_budget(visitor: Visitor, query: Query) -> list[Filter]:
    """Only there when one comes from a budget: the number says nothing to a reader by itself."""
    if not query["budget"]:
        return []
    budget = _budget(visitor, query["budget"])
    words = f"{format_money(budget.limit_minor, budget.currency)} a {budget.span}" if budget else "none"
    words += ", reserved" if query["budget"].endswith(_HELD) else ""
    return [Filter("budget", "Budget", query["budget"], [{"value": query["budget"], "label": words}])]


def _counts(rows: QuerySet[Operation]) -> dict[str, int]:
    counts: dict[str, int] = rows.order_by().aggregate(
        **{f"n_{view}": Count("pk", filter=condition) for view, (_, condition) in VIEWS.items()}
    )
    return {view: counts[f"n_{view}"] for view in VIEWS}


@dataclass(frozen=True, slots=True)
class Row:
    """One operation with its case."""

    known: Known
    case: Case


def _rows(shown: Sequence[Operation]) -> list[Row]:
    cases = Case.objects.select_related("agent", "proposal").in_bulk([each.order.subject for each in shown])
    return [Row(each, cases[each.operation.order.subject]) for each in known(shown)]


def _nothing(view: str, filters: Sequence[Filter], clear_url: str) -> dict[str, Any]:
    if on := in_words(filters):
        words = f"Only operations of {on} are shown."
        return {"title": "No operation here", "words": words, "clear_url": clear_url}
    if view:
        return {"title": "No operation here", "words": f"None is {VIEWS[view][0].lower()} now."}
    return {
        "title": "No operation yet",
        "words": "The last approval a case needs writes its operation, and what comes of it is kept here for good.",
    }
