"""What stands still: the organisation's halt, its tools' pauses, and who began and ended each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from approvals import halts
from approvals.console.entrance import Visitor, page
from approvals.console.forms import Form
from approvals.console.lists import Query, cut
from approvals.console.sources import source_in_words
from ledger import clock
from ledger import halts as ledger_halts
from ledger.models import Halt


@dataclass(frozen=True, slots=True)
class Shown:
    """A halt as pages tell it: of what, since when, whose, why, and how it ended or will."""

    tool: str
    began_at: datetime
    who: str
    reason: str
    ends_at: datetime | None
    ended_by: str
    open: bool
    of_restore: bool
    of_fence: bool

    @property
    def what(self) -> str:
        """What stands still, as the subject of a sentence."""
        return self.tool or "The organisation"

    @property
    def lasted(self) -> timedelta:
        """How long it stood still, or has so far."""
        over = self.ends_at is not None and not self.open
        return (self.ends_at if over and self.ends_at else clock.now()) - self.began_at


def shown(halts_: Iterable[Halt], *, now: datetime | None = None) -> list[Shown]:
    """Halts with their tools' names read; without ``now`` they are known to be open."""
    return [
        Shown(
            tool=each.tool.name if each.tool else "",
            began_at=each.began_at,
            who=who_in_words(each.began_by),
            reason=each.reason,
            ends_at=each.ends_at,
            ended_by=who_in_words(each.ended_by) if each.ended_by else "",
            of_restore=each.began_by == halts.RESTORE,
            of_fence=each.began_by == halts.FENCE,
            open=now is None or each.ends_at is None or each.ends_at > now,
        )
        for each in halts_
    ]


def who_in_words(source: str) -> str:
    """Who halts, as a subject: a person by name, a part of Countersign by what it does."""
    return _WHO.get(source) or source_in_words(source)


_WHO: Mapping[str, str] = {
    "breaker": "The breaker",
    "fence": "The fence",
    "restore": "The restore",
}


def open_now(visitor: Visitor) -> list[Shown]:
    """What stands still now, the organisation first."""
    rows = ledger_halts.open_ones(tenant_id=visitor.tenant_id).select_related("tool")
    found = shown(rows)
    return sorted(found, key=lambda each: (bool(each.tool), each.tool))


@page
def page_of_halts(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """What stands still now, the forms that change it, and every earlier halt."""
    return render(request, "approvals/halts.html", context(request, visitor))


def context(request: HttpRequest, visitor: Visitor, form: Form | None = None) -> dict[str, Any]:
    """Everything the page shows; ``form``: what was typed, where it came back."""
    query = Query.read(reverse("halts"), request.GET, "panel")
    everything = (
        Halt.objects.filter(tenant_id=visitor.tenant_id).select_related("tool").order_by("-began_at", "-pk")
    )
    rows, page_ = cut(everything, query, total=everything.count())
    now = open_now(visitor)
    return {
        "now": now,
        "halted": next((each for each in now if not each.tool), None),
        "history": shown(rows, now=clock.now()),
        "page": page_,
        "may": halts.may(visitor.actor),
        "panel": query["panel"] or (form.panel if form else ""),
        "form": form,
        "empty": {
            "title": "Nothing has ever stood still",
            "words": "Every halt and pause is kept here, with who began it, why, and who ended it.",
        },
    }
