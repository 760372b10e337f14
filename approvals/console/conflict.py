"""A word that came too late or met a state that does not allow it: it was not recorded, and this page says why."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from approvals import cases
from approvals.console import queue
from approvals.console.cases import address
from approvals.console.comparison import Row, compare
from approvals.console.entrance import Visitor
from approvals.console.history import did, who_of
from approvals.console.known import newest_of_case, was_anything_sent
from approvals.errors import Refusal, VersionConflict
from approvals.models import Case, Revision
from approvals.states import Act
from approvals.templatetags.states import words

if TYPE_CHECKING:
    from approvals.console.decisions import Draft


def conflict_page(
    request: HttpRequest, visitor: Visitor, case_id: int, draft: "Draft", error: Refusal | None
) -> HttpResponse:
    """412 where the revision has moved on, else 409. There is no way to approve anyway from here.

    ``error`` is None where an incomplete form turned out to be about an older revision: nothing was counted.
    """
    case = cases.visible(actor=visitor.actor, case_id=case_id)
    moved = error is None or isinstance(error, VersionConflict)
    context = {
        "case": case,
        "verdict": draft.verdict,
        "reviewed": draft.revision,
        **(_who_came_first(case, draft.revision) if moved else {"why": str(error)}),
        "sent": was_anything_sent(newest_of_case(visitor.tenant_id, case.pk)),
        "rows": _rows(case, draft.revision),
        "draft": draft,
        "next_url": address(case.pk, queue.origin(request, visitor)),
        "recorded": words(error.counted_as) if error is not None and error.case is not None else "",
    }
    return render(request, "approvals/conflict.html", context, status=412 if moved else 409)


def _who_came_first(case: Case, reviewed: int) -> dict[str, Any]:
    """Who changed what since, and when: new content before anything else, else the last write."""
    since = Revision.objects.filter(case=case, number__gt=reviewed, number__lte=case.revision)
    last = (
        since.filter(act__in=[Act.PROPOSED, Act.REVISED]).order_by("-number").first()
        or since.order_by("-number").first()
    )
    if last is None:
        return {"why": "The page you decided on was not of this case as it is stored. Read the case again."}
    return {"who": who_of(last), "act": did(last.act), "made": last.number, "at": last.at}


def _rows(case: Case, reviewed: int) -> Sequence[Row]:
    """All fields of both sides where the content differs; none where only the state has moved."""
    seen = (
        Revision.objects.select_related("proposal__policy", "proposal__tool_version")
        .filter(case=case, number=reviewed)
        .first()
    )
    if seen is None or seen.proposal_id == case.proposal_id:
        return []
    return compare(seen.proposal, case.proposal).everything
