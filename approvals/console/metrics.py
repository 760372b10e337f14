"""The six measures with their triggers, what stands beside them, and the decisions they speak of."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from approvals import pace
from approvals.console import charts
from approvals.console.entrance import Visitor, page
from approvals.console.lists import Query, Tab
from approvals.console.tiles import tiles
from approvals.pace import Pace
from ledger.looks import looks
from ledger.measures import WINDOWS, Measures, Window, measures
from ledger.money import format_money

DEFAULT = "7d"


@page
def metrics(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """All of it, for the window that the URL names."""
    query = Query.read(request.path, request.GET, "window")
    window = WINDOWS.get(query["window"], WINDOWS[DEFAULT])
    found = measures(tenant_id=visitor.tenant_id, window=window)
    decided = pace.pace(tenant_id=visitor.tenant_id, since=found.until - window.length, until=found.until)
    context = {
        "measures": found,
        "windows": windows(query, window),
        "window": window,
        "tiles": tiles(found),
        "asking": _ASKING[sum(bool(each.triggered) for each in found.six)],
        "outcomes": _outcomes(found),
        "pace": decided,
        "spread": _spread(decided),
        "decisions_url": f"{reverse('decisions-made')}?window={window.name}",
        "exposure": [format_money(amount, currency) for currency, amount in found.exposure.items()],
        "looks": looks(),
    }
    return render(request, "approvals/metrics.html", context)


def windows(query: Query, current: Window) -> list[Tab]:
    """The lengths of time one can choose among."""
    return [
        Tab(
            query.url(window=each.name),
            each.name.replace("h", " h").replace("d", " d"),
            None,
            each == current,
        )
        for each in WINDOWS.values()
    ]


_ASKING = (
    "No measure asks",
    "One of six measures asks",
    "Two of six measures ask",
    "Three of six measures ask",
    "Four of six measures ask",
    "Five of six measures ask",
    "All six measures ask",
)


# What came of it, and how long people took.


def _outcomes(found: Measures) -> dict[str, Any]:
    """Columns of outcomes, and the same numbers as a table of a few spans of time."""
    window, states = found.window, list(found.settled.items())
    begins = [found.until - window.step * (window.steps - index) for index in range(window.steps)]
    every = _EVERY[window.name]
    spans = range(0, window.steps, every)
    return {
        "chart": charts.columns(states, words_under(begins, window)),
        "title": {"24h": "Outcomes by hour", "7d": "Outcomes by six hours", "30d": "Outcomes by day"}[
            window.name
        ],
        "from": [_begin(begins[index], window) for index in spans],
        "rows": [
            (
                state,
                [sum(course[index : index + every]) for index in spans],
                sum(course),
                f"{reverse('operations')}?view={state}&settled={window.name}",
            )
            for state, course in states
        ],
    }


_EVERY = {"24h": 3, "7d": 4, "30d": 5}
"""Steps of a window that one column of the table counts together: three hours, a day, five days."""


def _begin(at: datetime, window: Window) -> str:
    """When a column of the table begins: steps are counted back from now, so days begin at any time of the clock."""
    local = timezone.localtime(at)
    return f"{local:%H:%M}" if window.name == "24h" else f"{local.day} {local:%b %H:%M}"


def words_under(begins: Sequence[datetime], window: Window) -> list[str]:
    """What stands under the chart: a time under a step's beginning, or a day under the first step that ends in it."""
    every = _EVERY[window.name]
    if window.name == "24h":
        return [_begin(at, window) if index % every == 0 else "" for index, at in enumerate(begins)]
    ends = [timezone.localtime(at + window.step) for at in begins]
    if window.name == "30d":
        named = [index % every == every - 1 for index in range(len(ends))]
    else:
        named = [index > 0 and at.date() != ends[index - 1].date() for index, at in enumerate(ends)]
    return [f"{at.day} {at:%b}" if name else "" for at, name in zip(ends, named, strict=True)]


_SPANS = ("under 5 s", "5–30 s", "30 s–2 min", "2–5 min", "5–15 min", "over 15 min")


def _spread(decided: Pace) -> list[dict[str, Any]]:
    """One row of the chart for each span: words, count, share in percent, place and length of the bar."""
    total, longest = max(decided.decisions, 1), max([*decided.spread, 1])
    return [
        {
            "words": words_,
            "count": count,
            "share": round(100 * count / total),
            "y": 6 + 27.5 * index,
            "text_y": 18 + 27.5 * index,
            "length": round(150 * count / longest, 1),
            "end": round(98 + 150 * count / longest, 1),
        }
        for index, (words_, count) in enumerate(zip(_SPANS, decided.spread, strict=True))
    ]
