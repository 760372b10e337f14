"""The Reconcile page: outcomes nobody knows, where ledger and sink disagree, and what a person can do about each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from accounts.models import Role
from approvals.console import disagreements, told, unsettled
from approvals.console.entrance import Visitor, page
from approvals.console.known import of_tenant
from approvals.console.lists import Query, Tab, cut
from approvals.console.told import Answered
from approvals.console.unsettled import BY_A_PERSON, Item, Unsettled
from approvals.errors import NotFound
from ledger.guarantees import length
from ledger.money import format_money
from ledger.states import OperationState

LOOKING, FINDINGS, SETTLED = "looking", "findings", "settled"
_MOST = 50
"""Items listed at once; those with less at stake follow as these are settled."""


@page
def reconcile(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """The list one is in, and its first item, or the one asked for."""
    return answer(request, visitor, request.GET.get("item", ""))


def answer(
    request: HttpRequest, visitor: Visitor, name: str, answered: Answered | None = None, view: str = ""
) -> HttpResponse:
    """The page with the item of this name open; ``answered``: what was typed there and was not recorded."""
    context = _Page(visitor, request, view).context(name, answered or Answered())
    return render(request, "approvals/reconcile.html", context, status=answered.status if answered else 200)


def address(name: object, view: str = "") -> str:
    """Where an item stands: ``/reconcile/?item=<key>``, or ``?view=findings&item=<number>``."""
    query = {"view": view, "item": str(name)}
    return f"{reverse('reconcile')}?{urlencode({name: value for name, value in query.items() if value})}"


class _Page:
    """The lists of one visitor, read once."""

    def __init__(self, visitor: Visitor, request: HttpRequest, view: str) -> None:
        self._visitor = visitor
        self._query = Query.read(reverse("reconcile"), request.GET, "view")
        self._unsettled = unsettled.unsettled(visitor.tenant_id)
        self._settled = unsettled.settled_lately(visitor.tenant_id)
        self._findings = disagreements.open_ones(visitor.tenant_id)
        self._view = view or self._query["view"]

    def context(self, name: str, answered: Answered) -> dict[str, Any]:
        """Everything the page shows."""
        if self._view == FINDINGS:
            return {**self._frame(FINDINGS), **self._of_finding(name), "answered": answered}
        opened = self._item(name) if name else None
        view = self._view_of(opened) if opened else self._named_view()
        listed, page_ = self._listed(view)
        opened = opened or next(iter(listed), None)
        return {
            **self._frame(view),
            "picks": listed,
            "page": page_,
            "item": opened,
            "answered": answered,
            **(told.of(self._visitor, opened, answered) if opened else {}),
        }

    def _named_view(self) -> str:
        return self._view if self._view in (LOOKING, SETTLED) else ""

    def _item(self, name: str) -> Item:
        listed = next((each for each in self._unsettled.all if each.name == name), None)
        rows = of_tenant(self._visitor.tenant_id).filter(order__key=name)
        found = [listed] if listed else unsettled.items(rows)
        if not found:
            raise NotFound("There is no such operation.")
        return found[0]

    def _view_of(self, item: Item) -> str:
        """The list that an item stands in now, wherever it stood before."""
        if item.known.settled:
            return SETTLED
        return "" if item.why else LOOKING

    def _listed(self, view: str) -> tuple[Sequence[Item], Any]:
        if view == SETTLED:
            rows, page_ = cut(self._settled, self._query.but(view=SETTLED), total=self._settled.count())
            shown = unsettled.items(
                of_tenant(self._visitor.tenant_id).filter(pk__in=[each.pk for each in rows])
            )
            by_id = {each.known.id: each for each in shown}
            return [by_id[each.pk] for each in rows], page_
        all_ = self._unsettled.looking if view == LOOKING else self._unsettled.needing
        return all_[:_MOST], None

    def _of_finding(self, name: str) -> dict[str, Any]:
        listed = disagreements.listed(self._findings[:_MOST])
        opened = next((each for each in listed if each.name == name), None)
        if name and opened is None:
            opened = disagreements.one(self._visitor.tenant_id, name)
        opened = opened or next(iter(listed), None)
        undo = told.undo(opened.operation) if opened else {}
        return {
            "picks": listed,
            "finding": opened,
            "muted_count": disagreements.muted_count(self._visitor.tenant_id),
            **undo,
        }

    def _frame(self, view: str) -> dict[str, Any]:
        """What stands above every list: the figures, each with its link, and the tabs with their counts."""
        found, settled_count = self._unsettled, self._settled.count()
        by_person = self._settled.filter(BY_A_PERSON).count()
        tabs = (
            ("", "Needs a person", len(found.needing)),
            (LOOKING, "Looking up", len(found.looking)),
            (FINDINGS, "Findings", len(self._findings)),
            (SETTLED, "Settled", settled_count),
        )
        return {
            "figures": _figures(found, settled_count, by_person),
            "tabs": [Tab(_list(each), label, count, each == view) for each, label, count in tabs],
            "view": view,
            "more_count": max({each: count for each, _, count in tabs}[view] - _MOST, 0),
            "may": self._visitor.actor.has_role(Role.OPERATOR),
            "empty": _EMPTY[view],
        }


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the header: what it counts, and the rows it counts."""

    label: str
    number: str
    url: str
    unit: str = ""
    loud: bool = False


def _figures(found: Unsettled, settled: int, by_person: int) -> list[Figure]:
    unknown = f"{reverse('operations')}?{urlencode({'view': OperationState.OUTCOME_UNKNOWN.value})}"
    money = [
        Figure("Money at risk", *_amount(amount, currency, unknown))
        for currency, amount in found.at_risk.items()
    ]
    figures = [
        *(money or [Figure("Money at risk", "none", unknown)]),
        Figure("Unknown", str(len(found.all)), unknown),
    ]
    if (oldest := found.oldest) is not None:
        label = f"Oldest, objective {length(oldest.objective)}"
        figures.append(Figure(label, oldest.age_in_words, address(oldest.name), loud=oldest.overdue))
    by_itself = Figure(
        "Settled by themselves, last day", f"{settled - by_person} of {settled}", _list(SETTLED)
    )
    return [*figures, *([by_itself] if settled else [])]


def _amount(amount: int, currency: str, url: str) -> tuple[str, str, str]:
    return format_money(amount, currency).removesuffix(f" {currency}"), url, currency


def _list(view: str) -> str:
    return f"{reverse('reconcile')}?{urlencode({'view': view})}" if view else reverse("reconcile")


_EMPTY = {
    "": {
        "title": "Nothing needs a person",
        "words": "An unknown outcome comes here once look-ups cannot settle it, or have not within the objective.",
    },
    LOOKING: {
        "title": "Nothing is being looked up",
        "words": "An unknown outcome that the workers can settle stands here while they ask its sink.",
    },
    FINDINGS: {
        "title": "Ledger and sinks agree",
        "words": "What a reconciliation or a late report finds to disagree stands here until it is settled.",
    },
    SETTLED: {
        "title": "Nothing was unknown in the last day",
        "words": "What was unknown and is settled stays here for a day, with whose word it was, if a person’s.",
    },
}
