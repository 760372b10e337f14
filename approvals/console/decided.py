"""The decisions that the metrics speak of: whose, on what, and how long each can have been looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from accounts.models import Member
from approvals import pace
from approvals.console.entrance import Visitor, page
from approvals.console.lists import ROWS, Query, Tab, cursor
from approvals.console.metrics import DEFAULT, windows
from approvals.models import Case
from ledger import clock
from ledger.measures import WINDOWS


@dataclass(frozen=True, slots=True)
class Decision:
    """One word on one revision: whose, on what, and how long it can have been looked at."""

    case: Case
    revision: int
    verdict: str
    who: str
    at: datetime
    took: timedelta
    looked: timedelta


@page
def decisions(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """The decisions of the window, all or those that were too fast to have been read; the newest first."""
    query = Query.read(request.path, request.GET, "window", "view", "before")
    window = WINDOWS.get(query["window"], WINDOWS[DEFAULT])
    hasty, before = query["view"] == "hasty", cursor(query["before"])
    until = clock.now()
    rows = pace.decisions(
        tenant_id=visitor.tenant_id,
        since=until - window.length,
        until=until,
        hasty=hasty,
        before=before,
        most=ROWS + 1,
    )
    more = rows[ROWS - 1].id if len(rows) > ROWS else None
    context = {
        "rows": _decisions(rows[:ROWS]),
        "windows": windows(query.but(before=""), window),
        "views": [
            Tab(query.url(view="", before=""), "All", None, not hasty),
            Tab(query.url(view="hasty", before=""), "Under five seconds", None, hasty),
        ],
        "newest_url": query.url(before="") if before else "",
        "older_url": query.url(before=str(more)) if more else "",
        "window": window,
        "empty": {"title": "No decision here", "words": f"None in the last {window.words}."},
    }
    return render(request, "approvals/decisions.html", context)


def _decisions(rows: Sequence[Any]) -> list[Decision]:
    cases = Case.objects.select_related("agent", "proposal__policy").in_bulk([row.case_id for row in rows])
    who = Member.objects.select_related("user").in_bulk([row.reviewer_id for row in rows])
    return [
        Decision(
            case=cases[row.case_id],
            revision=row.revision,
            verdict=row.verdict,
            who=who[row.reviewer_id].user.name,
            at=row.at,
            took=timedelta(seconds=row.took),
            looked=timedelta(seconds=row.looked),
        )
        for row in rows
    ]
