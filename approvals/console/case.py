"""The case page: what will happen, what changed, on what grounds, who else, and what is known to have happened."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.dateparse import parse_datetime

from approvals import cases, decisions, proposals, retention
from approvals.console import acts, budgets, queue, signatures
from approvals.console.acts import Situation
from approvals.console.cases import address, filtered, records
from approvals.console.changes import changes
from approvals.console.entrance import Visitor, page
from approvals.console.history import did, finding_in_words, revisions_of, story, who_of
from approvals.console.known import Known, known, newest_of_case, of_tenant
from approvals.console.lists import Query
from approvals.console.signatures import Quorum
from approvals.models import Case, Revision
from approvals.states import OPEN
from ledger import clock
from ledger.guarantees import guarantee
from ledger.models import Finding
from ledger.money import format_amount

_MOST_RELATED = 10
_MOST_IN_PAGER = 500  # cases of the queue looked at for "3 of 12"


@page
def case(request: HttpRequest, visitor: Visitor, case_id: int) -> HttpResponse:
    """The page, or one of its two live regions."""
    shown = cases.visible(actor=visitor.actor, case_id=case_id)
    match request.GET.get("region"):
        case "newer":
            return _newer_region(request, visitor, shown)
        case "operation":
            return _operation_region(request, visitor, shown)
    panel = request.GET.get("panel", "")
    return render(request, "approvals/case.html", context(request, visitor, shown, panel=panel))


# The whole page. A decision that lacks something is answered with it, too, its panel open and its words kept.


def context(
    request: HttpRequest,
    visitor: Visitor,
    shown: Case,
    *,
    panel: str = "",
    draft: object = None,
) -> dict[str, Any]:
    """Everything the case's template reads, for the revision ``shown`` carries."""
    operations = known(
        list(of_tenant(visitor.tenant_id).filter(order__subject=shown.pk).order_by("-order_id"))
    )
    last = operations[0] if operations else None
    quorum = signatures.quorum(
        shown, visitor, approved_revision=last.operation.order.approved_revision if last else None
    )
    findings = _findings(shown)
    here = Situation(
        shown,
        visitor,
        quorum,
        clock.now(),
        disputed=bool(findings),
        waits_for=last.waits_for if last else None,
        wait=last.wait.words if last and last.wait else "",
    )
    offered = acts.acts(here)
    revisions = revisions_of(shown)
    way = _way(request, visitor, shown)
    return {
        "case": shown,
        "removed": retention.removed(shown),
        "proposal": shown.proposal,
        **proposals.material(shown.proposal),
        "evidence": [_evidence(each) for each in shown.proposal.evidence],
        "guarantee": guarantee(shown.proposal.tool_version),
        "findings": findings,
        "signs": signatures.lines(shown, quorum, visitor, mine_open=_can(offered, "approve")),
        "votes": quorum.votes,
        "changes": changes(
            visitor, shown, revisions, asked=request.GET.get("since", ""), origin=way["origin"]
        ),
        "newer": None,
        "operation": last,
        "related": _related(visitor, shown),
        "budgets": budgets.of_case(shown),
        "history": story(shown, revisions, quorum.votes, operations),
        "acts": offered,
        "approving": _can(offered, "approve"),
        "bar_words": acts.bar_words(here, who_of(revisions[-1])),
        "panel": panel,
        "draft": draft,
        "asks": _asks(shown, quorum),
        "reason_presets": acts.PRESETS,
        **way,
    }


def _can(offered: Sequence[acts.Act], verdict: str) -> bool:
    return any(each.verdict == verdict and not each.why for each in offered)


def _asks(shown: Case, quorum: Quorum) -> dict[str, Any]:
    """What the tier asks of whoever approves, and whether it is the last approval needed."""
    tier, proposal = shown.proposal.policy.tier, shown.proposal
    typed = tier >= decisions.AMOUNT_TIER and proposal.amount_minor is not None
    amount = format_amount(proposal.amount_minor or 0, proposal.currency or "") if typed else ""
    return {"reason": tier >= decisions.REASON_TIER, "amount": amount, "last": quorum.missing <= 1}


def _evidence(item: Any) -> dict[str, Any]:
    """One piece of evidence; its age where it says when it was fetched, in a form one can count with."""
    given: Mapping[str, Any] = item if isinstance(item, dict) else {"statement": item}
    told = given.get("fetched_at")
    try:
        fetched_at = parse_datetime(told) if isinstance(told, str) else None
    except ValueError:
        fetched_at = None
    in_the_calendar = fetched_at if fetched_at is not None and fetched_at.tzinfo is not None else None
    return {
        "statement": given.get("statement", ""),
        "source": given.get("source", ""),
        "fetched_at": in_the_calendar,
        "fetched": "" if in_the_calendar else (told or ""),
    }


def _findings(shown: Case) -> list[dict[str, str]]:
    opened = Finding.objects.filter(tenant_id=shown.tenant_id, subject=shown.pk, closed_at=None)
    return [
        {
            "words": f"{finding_in_words(each.kind)} {_reference(each)}".rstrip(),
            "url": f"{reverse('reconcile')}?view=findings&item={each.pk}",
        }
        for each in opened.order_by("pk")
    ]


def _reference(finding: Finding) -> str:
    return f"Its reference there: {finding.reference}." if finding.reference else ""


def _related(visitor: Visitor, shown: Case) -> list[Any]:
    """Other cases of the same reference, the newest first."""
    same = Case.objects.filter(tenant_id=visitor.tenant_id, reference=shown.reference).exclude(pk=shown.pk)
    return records(list(same.order_by("-pk")[:_MOST_RELATED]))


# Where one came from, and what comes next.


def _way(request: HttpRequest, visitor: Visitor, shown: Case) -> dict[str, Any]:
    """Back to the queue one came from, or to all cases; and, in a queue, the neighbours."""
    query = queue.read(request, visitor)
    if shown.state not in OPEN and not queue.comes_from_queue(request):
        return {"back": {"url": reverse("cases"), "label": "Cases"}, "pager": None, "origin": ""}
    back = {"url": query.url(), "label": "Review queue"}
    return {"back": back, "pager": _pager(visitor, shown, query), "origin": query.encoded()}


def _pager(visitor: Visitor, shown: Case, query: Query) -> dict[str, Any] | None:
    if query["view"] == "decided":
        return None
    rows = filtered(queue.in_view(visitor, query["view"]), query)
    ids = list(queue.in_order(rows).values_list("pk", flat=True)[:_MOST_IN_PAGER])
    # A case that was just decided has left the queue: what comes next is its first.
    at = ids.index(shown.pk) if shown.pk in ids else -1
    before, after = ids[at - 1 : at] if at > 0 else [], ids[at + 1 : at + 2]
    return {
        "position": at + 1,
        "total": len(ids) if len(ids) < _MOST_IN_PAGER else rows.count(),
        "previous_url": address(before[0], query.encoded()) if before else "",
        "next_url": address(after[0], query.encoded()) if after else "",
    }


# Live regions. Both answer 204 while there is nothing to draw anew, so that no focus is lost for nothing.


def _newer_region(request: HttpRequest, visitor: Visitor, shown: Case) -> HttpResponse:
    seen = request.GET.get("revision", "")
    if seen == str(shown.revision):
        return HttpResponse(status=204)
    last = Revision.objects.get(case=shown, number=shown.revision)
    url = address(shown.pk, queue.read(request, visitor).encoded())
    newer = {
        "seen": seen,
        "revision": shown.revision,
        "at": last.at,
        "words": f"{who_of(last)} {did(last.act)}",
        "url": url,
        "state": shown.state,
    }
    return render(request, "approvals/partials/_newer_region.html", {"case": shown, "newer": newer})


def _operation_region(request: HttpRequest, visitor: Visitor, shown: Case) -> HttpResponse:
    last: Known | None = newest_of_case(visitor.tenant_id, shown.pk)
    if last is None or request.GET.get("seen") == last.tag:
        return HttpResponse(status=204)
    return render(request, "approvals/partials/_operation.html", {"case": shown, "operation": last})
