"""Finding a case by whatever one has of it: reference, number, key, the provider's reference, the target, its words."""

from collections.abc import Iterator

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from approvals.console.cases import address, records
from approvals.console.entrance import Visitor, page
from approvals.console.lists import ROWS, Page, Query
from approvals.models import Case
from ledger.models import Operation

_LEAST_PREFIX = 4  # hex digits; fewer say nothing about a key
_LEAST_WORDS = 2  # characters; one is in every sentence


@page
def search(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """What was found, the exact ones first; a single exact one is opened at once."""
    text = Query.read(request.path, request.GET, "q")["q"]
    matches: dict[int, str] = {}
    if text:
        _note(matches, _exact(visitor, text))
    if len(matches) == 1 and "case number" not in matches.values():
        return redirect(address(next(iter(matches))))
    _note(matches, _similar(visitor, text))
    if [*matches.values()] == ["case number"]:  # a bare number is a reference to most people
        return redirect(address(next(iter(matches))))
    found = list(Case.objects.filter(pk__in=list(matches)[:ROWS]))
    found.sort(key=lambda case: list(matches).index(case.pk))
    context = {
        "query": text,
        "rows": records(found, matches=matches),
        "page": Page(min(len(found), 1), len(found), len(found), "", ""),
        "empty": _nothing(text),
    }
    return render(request, "approvals/cases.html", context)


def _note(matches: dict[int, str], found: Iterator[tuple[int, str]]) -> None:
    """Adds what is not among the matches yet: the first reason is the best."""
    for case_id, why in found:
        matches.setdefault(case_id, why)


def _exact(visitor: Visitor, text: str) -> Iterator[tuple[int, str]]:
    """(case, what matched) for everything of which the text is the whole name."""
    cases = Case.objects.filter(tenant_id=visitor.tenant_id).order_by("-pk")
    number = text.removeprefix("#")
    if number.isascii() and number.isdigit() and len(number) < 19:
        yield from ((each, "case number") for each in _ids(cases.filter(pk=int(number))))
    yield from ((each, "reference") for each in _ids(cases.filter(reference=text)))
    yield from ((each, "target") for each in _ids(cases.filter(target=text)))
    yield from ((each, "action key") for each in _ids(cases.filter(action_key=text.lower())))
    operations = Operation.objects.filter(tool__tenant_id=visitor.tenant_id).order_by("-order_id")
    yield from ((each, "idempotency key") for each in _subjects(operations.filter(order__key=text.lower())))
    yield from ((each, "provider reference") for each in _subjects(operations.filter(reference=text)))


def _similar(visitor: Visitor, text: str) -> Iterator[tuple[int, str]]:
    """(case, what matched) for what begins with the text or has it among its words."""
    if len(text) < _LEAST_WORDS:
        return
    cases = Case.objects.filter(tenant_id=visitor.tenant_id).order_by("-pk")
    if len(text) >= _LEAST_PREFIX:
        operations = Operation.objects.filter(tool__tenant_id=visitor.tenant_id).order_by("-order_id")
        begins = Q(order__key__startswith=text.lower()) | Q(reference__startswith=text)
        yield from ((each, "key or provider reference") for each in _subjects(operations.filter(begins)))
    yield from ((each, "reference") for each in _ids(cases.filter(reference__icontains=text)))
    yield from ((each, "target") for each in _ids(cases.filter(target__icontains=text)))
    yield from ((each, "words") for each in _ids(cases.filter(proposal__sentence__icontains=text)))


def _ids(cases: QuerySet[Case]) -> list[int]:
    return list(cases.values_list("pk", flat=True)[:ROWS])


def _subjects(operations: QuerySet[Operation]) -> list[int]:
    return list(operations.values_list("order__subject", flat=True)[:ROWS])


def _nothing(text: str) -> dict[str, str]:
    if not text:
        return {"title": "Nothing to look for", "words": "Type a reference, a number, a key or a payee."}
    return {
        "title": "Nothing found",
        "words": "No case of your organisation has this reference, number, key, target or these words.",
    }
