"""The review queue: what waits for a decision, and in which order it deserves attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import (
    BooleanField,
    Count,
    ExpressionWrapper,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
)
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse

from accounts.models import Member
from approvals import votes
from approvals.console.cases import address, case_filters, filtered, records
from approvals.console.entrance import Visitor, page
from approvals.console.lists import Filter, Query, Tab, cut, in_words
from approvals.models import Case, Vote
from approvals.states import CaseState, Verdict
from ledger import clock

SOON = timedelta(hours=1)
"""What expires within it comes first, whatever its risk."""
HIGH_RISK = 2
"""From this tier on."""

VIEWS = {
    "mine": "Mine",
    "high-risk": "High risk",
    "expiring": "Expiring",
    "all": "All",
    "decided": "Decided",
}
_DECIDED = [
    CaseState.APPROVED,
    CaseState.REJECTED,
    CaseState.EXECUTING,
    CaseState.EXECUTED,
    CaseState.FAILED,
    CaseState.UNKNOWN,
]


@page
def queue(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """The queue in one of its views; with ``region=news`` only the line about what has arrived since."""
    query = read(request, visitor)
    if request.GET.get("region") == "news":
        return _news_line(request, visitor, query)
    counts = _counts(visitor, query)
    filters = case_filters(visitor, query)
    context = {
        **_shown(visitor, query, counts),
        "views": _tabs(query, counts),
        "view": query["view"],
        "filters": filters,
        "clear_url": query.url(agent="", tool="") if in_words(filters) else "",
        "summary": {"count": counts["unfiltered"], "oldest": counts["oldest"]},
    }
    if not context["rows"]:
        context["empty"] = _nothing(visitor, query, filters, counts)
    return render(request, "approvals/queue.html", context)


# What waits, for whom, in which order. The case page uses it, too: for what comes next.


def read(request: HttpRequest, visitor: Visitor) -> Query:
    """The queue's part of a URL. Home shows a reviewer what is his or hers to decide, anybody else everything.

    A case page carries it along, so that one comes back to where one was; its forms have it in ``origin``.
    """
    query = Query.read(reverse("queue"), _told(request), "view", "agent", "tool")
    home = "mine" if visitor.reviews else "all"
    return query if query["view"] in VIEWS else query.but(view=home)


def comes_from_queue(request: HttpRequest) -> bool:
    """Whether a case page was opened from the queue."""
    return _told(request).get("view") in VIEWS


def origin(request: HttpRequest, visitor: Visitor) -> str:
    """Where a case page was opened from, as it stands in URLs; empty where that was not the queue."""
    return read(request, visitor).encoded() if comes_from_queue(request) else ""


def _told(request: HttpRequest) -> QueryDict:
    return QueryDict(request.POST.get("origin", "")) if request.method == "POST" else request.GET


def in_view(visitor: Visitor, view: str) -> QuerySet[Case]:
    """The cases of one view, in no order."""
    if view == "decided":
        return Case.objects.filter(tenant_id=visitor.tenant_id, state__in=_DECIDED)
    return _open_cases(visitor).filter(_conditions(visitor)[view])


def in_order(rows: QuerySet[Case]) -> QuerySet[Case]:
    """What expires soon first, then by risk, then what has waited longest."""
    soon = ExpressionWrapper(Q(proposal__expires_at__lte=Now() + SOON), output_field=BooleanField())
    return rows.annotate(soon=soon).order_by("-soon", "-proposal__policy__tier", "proposal__created_at", "pk")


def mine_count(visitor: Visitor) -> int:
    """How many cases wait for this person."""
    return in_view(visitor, "mine").count() if visitor.reviews else 0


def _open_cases(visitor: Visitor) -> QuerySet[Case]:
    my_last = Vote.objects.filter(
        case=OuterRef("pk"), revision=OuterRef("revision"), reviewer=visitor.member
    ).order_by("-pk")
    return Case.objects.filter(tenant_id=visitor.tenant_id, is_open=True).annotate(
        my_word=Subquery(my_last.values("verdict")[:1])
    )


def _conditions(visitor: Visitor) -> Mapping[str, Q]:
    """What makes an open case part of a view. Mine: I may still decide it, and have not."""
    undecided_by_me = Q(my_word=None) | ~Q(my_word=Verdict.APPROVE)
    mine = Q(state=CaseState.PENDING) & ~Q(agent__owner=visitor.member) & undecided_by_me
    return {
        "mine": mine if visitor.reviews else Q(pk__lt=0),
        "high-risk": Q(proposal__policy__tier__gte=HIGH_RISK),
        "expiring": Q(proposal__expires_at__lte=Now() + SOON),
        "all": Q(),
    }


def _counts(visitor: Visitor, query: Query) -> dict[str, Any]:
    """How many rows each view leads to under the filters, and without them how many wait since when."""
    rows, conditions = _open_cases(visitor), _conditions(visitor)
    counts: dict[str, Any] = filtered(rows, query).aggregate(
        **{view: Count("pk", filter=condition) for view, condition in conditions.items()}
    )
    whole = rows.aggregate(unfiltered=Count("pk"), oldest=Min("proposal__created_at"))
    return {**counts, **whole}


# The rows.


@dataclass(frozen=True, slots=True)
class Row:
    """One waiting case, with what a reviewer should know before opening it."""

    case: Case
    url: str
    notes: Sequence[str]
    soon: bool

    @property
    def waits_since(self) -> datetime:
        """Since when the content that waits has been there."""
        return self.case.proposal.created_at


def _shown(visitor: Visitor, query: Query, counts: Mapping[str, Any]) -> dict[str, Any]:
    rows = filtered(in_view(visitor, query["view"]), query)
    if query["view"] == "decided":
        shown, page_ = cut(rows.order_by("-pk"), query, total=rows.count())
        return {"rows": records(shown, origin=query.encoded()), "page": page_, "decided": True}
    ordered = in_order(rows).select_related("agent", "proposal__policy")
    shown, page_ = cut(ordered, query, total=counts[query["view"]])
    newest = rows.order_by("-pk").values_list("pk", flat=True).first() or 0
    return {
        "rows": _rows(visitor, shown, query),
        "page": page_,
        "news": _news(query, after=newest, count=0),
    }


def _rows(visitor: Visitor, shown: Sequence[Case], query: Query) -> list[Row]:
    approvers = _approvers(shown)
    changed = _changed_since_my_vote(visitor, shown)
    now = clock.now()
    return [
        Row(
            case=each,
            url=address(each.pk, query.encoded()),
            notes=list(_notes(each, approvers.get(each.pk, []), each.pk in changed, now)),
            soon=each.soon,  # type: ignore[attr-defined]
        )
        for each in shown
    ]


def _notes(case: Case, approvers: Sequence[str], changed: bool, now: datetime) -> list[str]:
    required = case.proposal.policy.approvals_required
    told = {
        "held": case.state == CaseState.HELD,
        "changes requested, the agent’s turn": case.state == CaseState.RETURNED,
        "changed since you voted": changed,
        f"{len(approvers)} of {required} approved: {', '.join(approvers)}": bool(approvers),
        "deadline passed": case.proposal.expires_at <= now,
    }
    return [words for words, holds in told.items() if holds]


def _approvers(shown: Sequence[Case]) -> dict[int, list[str]]:
    """{case id: who has approved its current revision}."""
    standing = votes.standing_approvals((each.pk, each.revision) for each in shown)
    members = Member.objects.select_related("user").in_bulk({id_ for ids in standing.values() for id_ in ids})
    return {case_id: sorted(str(members[id_]) for id_ in ids) for case_id, ids in standing.items()}


def _changed_since_my_vote(visitor: Visitor, shown: Sequence[Case]) -> set[int]:
    """Cases whose content is no longer what I last gave my word on."""
    last = Vote.objects.filter(case__in=shown, reviewer=visitor.member).order_by("case_id", "-pk")
    digests = dict(last.distinct("case_id").values_list("case_id", "digest"))
    return {each.pk for each in shown if digests.get(each.pk, each.proposal.digest) != each.proposal.digest}


# What stands around the rows.


def _tabs(query: Query, counts: Mapping[str, Any]) -> list[Tab]:
    return [
        Tab(query.url(view=view), label, counts.get(view), current=view == query["view"])
        for view, label in VIEWS.items()
    ]


def _news(query: Query, *, after: int, count: int) -> dict[str, Any]:
    """The line that counts what has arrived; it asks again by itself, and says how many it already tells."""
    return {
        "count": count,
        "url": f"{query.url()}&region=news&after={after}&shown={count}",
        "show_url": query.url(),
    }


def _news_line(request: HttpRequest, visitor: Visitor, query: Query) -> HttpResponse:
    after, shown = _number(request.GET.get("after", "")), _number(request.GET.get("shown", ""))
    count = filtered(in_view(visitor, query["view"]), query).filter(pk__gt=after).count()
    if count == shown:
        return HttpResponse(status=204)  # nothing to draw again
    return render(request, "approvals/partials/_news.html", {"news": _news(query, after=after, count=count)})


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _nothing(
    visitor: Visitor, query: Query, filters: Sequence[Filter], counts: Mapping[str, Any]
) -> dict[str, str]:
    """Why there is no row, and which filter is on."""
    view, others = query["view"], counts["unfiltered"]
    if on := in_words(filters):
        return {
            "title": "Nothing waits here",
            "words": f"Only cases of {on} are shown. Without that filter, {_waiting(others)}.",
            "clear_url": query.url(agent="", tool=""),
        }
    title, words = _NOTHING[view]
    if view == "mine" and not visitor.reviews:
        words = f"Only reviewers decide; you are here as {visitor.roles}. All shows what waits."
    elif view == "mine" and others:
        words = f"{_waiting(others).capitalize()}, but none for you: you have decided, or you stand behind the agent."
    return {"title": title, "words": words}


def _waiting(count: int) -> str:
    return f"{count or 'no'} case waits" if count == 1 else f"{count or 'no'} cases wait"


_NOTHING = {
    "mine": (
        "Nothing waits for you",
        "New cases appear here when an agent proposes something you may decide.",
    ),
    "high-risk": ("No high risk waits", f"No open case is of risk tier T{HIGH_RISK} or higher."),
    "expiring": ("Nothing expires soon", "No open case expires within the hour."),
    "all": (
        "Nothing waits",
        "When an agent proposes an action over the API, its case appears here, soonest deadline first.",
    ),
    "decided": ("Nothing is decided yet", "Approved and rejected cases appear here, with what came of them."),
}
