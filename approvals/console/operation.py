"""One operation: who approved what, under which keys, each attempt at it, and whether it is safe to send again."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from approvals import votes
from approvals.console import lanes, signatures
from approvals.console.answers import Circumstances, is_it_safe, what_is_known
from approvals.console.entrance import Visitor, page
from approvals.console.history import control_in_words
from approvals.console.known import Known, known, of_tenant
from approvals.console.sources import source_in_words
from approvals.console.trace import trace
from approvals.console.unsettled import attested_by
from approvals.models import Case, Proposal
from approvals.states import CaseState
from ledger import clock, findings, halts
from ledger.guarantees import guarantee
from ledger.models import ControlEvent, Finding, Operation
from ledger.states import UNRESOLVED, FindingKind

_MOST_EVENTS = 50


@page
def operation(request: HttpRequest, visitor: Visitor, name: str) -> HttpResponse:
    """The page of the operation of this number or key."""
    shown = known([_visible(visitor, name)])[0]
    case = Case.objects.select_related("agent", "proposal__policy").get(pk=shown.operation.order.subject)
    return render(request, "approvals/operation.html", _context(shown, case))


def _visible(visitor: Visitor, name: str) -> Operation:
    rows = of_tenant(visitor.tenant_id).select_related("order__tool_version", "tool", "resource")
    by_key = len(name) == 40  # hex digits of a key; numbers are shorter
    found = rows.filter(order__key=name) if by_key else rows.filter(order_id=int(name))
    if (operation := found.first()) is None:
        raise Http404("There is no such operation.")
    return operation


def _context(shown: Known, case: Case) -> dict[str, Any]:
    order = shown.operation.order
    here, words = circumstances(shown, case), list(shown.operation.attestations.order_by("pk"))
    signs = signatures.approvals_of(case, order.approved_revision)
    approvers = signatures.in_a_row([each.name for each in signs if each.kind == "signed"])
    return {
        "operation": shown,
        "order": order,
        "case": case,
        "approved": _approved(case, order.approved_revision),
        "answer": what_is_known(here),
        "twice": here.twice,
        "safe": is_it_safe(here),
        "attested_by": attested_by(words),
        "for_a_person": shown.state in UNRESOLVED and not here.held,
        "signs": signs,
        "guarantee": guarantee(order.tool_version),
        "lanes": lanes.draw(shown, here.now),
        "trace": trace(shown, approvers=approvers, now=here.now, words=words),
        "events": _events(shown),
    }


def circumstances(shown: Known, case: Case) -> Circumstances:
    """What the answers about an operation of this case are computed from, as it is now."""
    order = shown.operation.order
    stood = halts.standstill([order.tenant_id])
    return Circumstances(
        shown,
        clock.now(),
        standing=_approval_stands(shown, case),
        still=stood.reason(tenant_id=order.tenant_id, tool_id=shown.operation.tool_id) is not None,
        twice=Finding.objects.filter(
            tenant_id=order.tenant_id, subject=order.subject, kind=FindingKind.TWICE, closed_at=None
        ).exists(),
    )


def _approval_stands(shown: Known, case: Case) -> bool:
    """Whether a worker would be allowed to send under the approval as it is now."""
    policy, revision = case.proposal.policy, shown.operation.order.approved_revision - 1
    approvals = votes.standing_approvals([(case.pk, revision)])[case.pk]
    return (
        case.state in (CaseState.APPROVED, CaseState.EXECUTING, CaseState.UNKNOWN)
        and case.proposal.expires_at > clock.now()
        and len(approvals) >= policy.approvals_required
        and not findings.disputed([case.pk])
    )


def _approved(case: Case, approved_revision: int) -> Proposal:
    """What was approved, which may no longer be what the case proposes."""
    return case.revisions.select_related("proposal").get(number=approved_revision).proposal


def _events(shown: Known) -> list[dict[str, Any]]:
    """What the controls did about this identity, the newest first."""
    order = shown.operation.order
    events = ControlEvent.objects.filter(tenant_id=order.tenant_id, subject=order.subject, key=order.key)
    return [
        {
            "at": each.at,
            "kind": each.kind,
            "who": source_in_words(each.source),
            "words": control_in_words(each),
        }
        for each in events.order_by("-pk")[:_MOST_EVENTS]
    ]
