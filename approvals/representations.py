"""How cases, revisions, votes, operations and tools read in JSON.

Ids are strings, times RFC 3339 in UTC, money minor units with its currency. A case's representation holds only what its
revision records and its operation's state, which never moves without it: so the revision's tag stands for all of it.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.urls import reverse

from approvals import proposals, retention
from approvals.models import Case, Policy, Proposal, Revision, Vote
from approvals.retention import Removed
from approvals.states import Act, CaseState, Verdict
from approvals.tags import Tag
from ledger.guarantees import guarantee
from ledger.models import (
    Attempt,
    Attestation,
    ControlEvent,
    Evidence,
    Finding,
    Operation,
    Order,
    ToolVersion,
)
from ledger.states import AttemptOutcome, OperationState

Json = dict[str, Any]


def case(shown: Case) -> Json:
    """One case."""
    return cases([shown])[0]


def cases(shown: Sequence[Case]) -> list[Json]:
    """Cases with their decisions and operations, in a fixed number of queries."""
    decisions = _decisions(shown)
    operations = _operations(shown, decisions)
    removed = retention.removed_of([each.proposal_id for each in shown])
    undone = dict(
        Order.objects.filter(
            pk__in=[each.compensates_id for each in shown if each.compensates_id]
        ).values_list("pk", "key")
    )
    return [
        {
            "id": str(each.pk),
            "reference": each.reference,
            "action": each.action,
            "target": each.target,
            "step": each.step,
            "state": each.state,
            "revision": each.revision,
            "action_key": each.action_key,
            **_content(each.proposal, removed.get(each.proposal_id)),
            "risk_tier": each.proposal.policy.tier,
            "approvals_required": each.proposal.policy.approvals_required,
            "compensates": undone.get(each.compensates_id or 0),
            "created_at": moment(each.created_at),
            "expires_at": moment(each.proposal.expires_at),
            "decision": decisions.get(each.pk),
            "operation": operations.get(each.pk),
            "links": _case_links(each.pk),
        }
        for each in shown
    ]


def _content(proposal: Proposal, removed: Removed | None) -> Json:
    """What was proposed. Once it was removed its members are empty, and ``content_removed`` says when and why."""
    material = proposals.material(proposal)
    return {
        "summary": proposal.sentence,
        "parameters": material["parameters"],
        "expects": material["expects"],
        "rationale": proposal.rationale,
        "evidence": proposal.evidence,
        "trace_id": proposal.trace_id,
        "digest": proposal.digest,
        "fingerprint": proposal.fingerprint,
        "content_removed": removed
        and {"at": moment(removed.at), "because": removed.because, "on_request": removed.erased},
    }


def case_link(case_id: int) -> str:
    """The case's own address."""
    return reverse("api-case", args=[case_id])


def _case_links(case_id: int) -> Json:
    return {
        "self": case_link(case_id),
        "revisions": reverse("api-revisions", args=[case_id]),
        "votes": reverse("api-votes", args=[case_id]),
        "page": settings.BASE_URL + reverse("case", args=[case_id]),  # whole: an agent hands it to a person
    }


# Decisions: what the votes on one revision amounted to, until something makes it void.

_DECIDING = {
    Act.APPROVED: Verdict.APPROVE,
    Act.REJECTED: Verdict.REJECT,
    Act.RETURNED: Verdict.REQUEST_CHANGES,
    Act.HELD: Verdict.HOLD,
}
_VOIDING = (Act.PROPOSED, Act.REVISED, Act.RELEASED, Act.REVOKED, Act.LAPSED, Act.REOPENED)


def _decisions(shown: Sequence[Case]) -> dict[int, Json]:
    """{case id: its standing decision}. A decision names the revision it was about, not the one it made."""
    last = (
        Revision.objects.filter(case__in=shown, act__in=[*_DECIDING, *_VOIDING])
        .order_by("case_id", "-number")
        .distinct("case_id")
    )
    corrected = _carried_out_after_all(shown, {each.case_id for each in last if each.act == Act.APPROVED})
    standing = [each for each in last if each.act in _DECIDING and each.case_id not in corrected]
    standing += corrected.values()
    approvals = _approvals({each.case_id: each.number - 1 for each in standing})
    return {
        each.case_id: {
            "verdict": _DECIDING[Act(each.act)],
            "revision": each.number - 1,
            "reason_code": each.reason_code,
            "reason": each.reason,
            "decided_at": moment(each.at),
            "approvals": approvals.get(each.case_id, []),
        }
        for each in standing
    }


def _carried_out_after_all(shown: Sequence[Case], approved: Collection[int]) -> dict[int, Revision]:
    """{case id: the approval that was carried out} of cases that a correction has led past what was decided since."""
    cases_ = [each.pk for each in shown if each.state == CaseState.EXECUTED and each.pk not in approved]
    if not cases_:
        return {}
    committed = Order.objects.filter(subject__in=cases_, operation__state=OperationState.COMMITTED)
    made = dict(committed.values_list("subject", "approved_revision"))
    rows = Revision.objects.filter(case__in=cases_, act=Act.APPROVED)
    return {each.case_id: each for each in rows if each.number == made.get(each.case_id)}


def _approvals(revisions: Mapping[int, int]) -> dict[int, list[Json]]:
    """Who said approve last on the revision that was decided: rows that no later vote or change of roles can alter."""
    last_words = (
        Vote.objects.filter(case__in=list(revisions))
        .select_related("reviewer__user")
        .order_by("case_id", "revision", "reviewer_id", "-id")
        .distinct("case_id", "revision", "reviewer_id")
    )
    given: dict[int, list[Json]] = {}
    for vote in sorted(last_words, key=lambda vote: vote.pk):
        if vote.revision == revisions[vote.case_id] and vote.verdict == Verdict.APPROVE:
            given.setdefault(vote.case_id, []).append({"by": vote.reviewer.user.name, "at": moment(vote.at)})
    return given


# The case's operation in short.


def _operations(shown: Sequence[Case], decisions: Mapping[int, Json]) -> dict[int, Json]:
    """{case id: its operation}: one that may act or has acted, or the failed one of the standing approval.

    An earlier failure is history once the case is proposed again: nobody who waits may take it for news.
    """
    newest = list(
        Operation.objects.filter(order__subject__in=[each.pk for each in shown])
        .select_related("order")
        .annotate(failed=FAILED)
        .order_by(
            "order__subject", "failed", "-order_id"
        )  # after a correction an older one is the one that happened
        .distinct("order__subject")
    )
    receipts = receipts_of(newest)
    return {
        each.order.subject: _operation_of_case(each, receipts.get(each.pk))
        for each in newest
        if each.state != OperationState.FAILED_BEFORE_COMMIT
        or _belongs(each, decisions.get(each.order.subject))
    }


FAILED = ExpressionWrapper(Q(state=OperationState.FAILED_BEFORE_COMMIT), output_field=BooleanField())


def _belongs(failed: Operation, decision: Json | None) -> bool:
    return (
        decision is not None
        and decision["verdict"] == Verdict.APPROVE
        and decision["revision"] + 1 == failed.order.approved_revision
    )


def _operation_of_case(shown: Operation, receipt: Any) -> Json:
    return {
        "idempotency_key": shown.order.key,
        "approved_revision": shown.order.approved_revision,
        "state": shown.state,
        # While it is unsettled the reason can change without a revision: /operations has it then.
        "reason": shown.reason if shown.settled_at else None,
        "reference": shown.reference,
        "receipt": receipt,
        "settled_at": moment(shown.settled_at),
        "links": {"self": operation_link(shown)},
    }


def receipts_of(shown: Sequence[Operation]) -> dict[int, Any]:
    """{operation id: what the sink answered when it happened}."""
    committed = [each.pk for each in shown if each.state == OperationState.COMMITTED]
    return {
        each.operation_id: _receipt(each.receipt)
        for each in Attempt.objects.filter(operation__in=committed, outcome=AttemptOutcome.COMMITTED)
    }


def _receipt(stored: str | None) -> Any:
    return None if stored is None else json.loads(stored)


def operation_link(shown: Operation) -> str:
    """The operation's own address."""
    return reverse("api-operation", args=[shown.order.key])


# Sub-resources of a case.


def revisions(shown: Sequence[Revision]) -> list[Json]:
    """Writes to a case, each with the content it had then."""
    removed = retention.removed_of([each.proposal_id for each in shown])
    return [_revision(each, removed.get(each.proposal_id)) for each in shown]


def _revision(shown: Revision, removed: Removed | None) -> Json:
    return {
        "number": shown.number,
        "etag": str(Tag(shown.number, shown.proposal.digest[:8])),
        "state": shown.state,
        "act": shown.act,
        "actor": {"kind": shown.actor_kind, "name": shown.actor_name},
        "reason_code": shown.reason_code,
        "reason": shown.reason,
        "at": moment(shown.at),
        **_content(shown.proposal, removed),
    }


def vote(shown: Vote) -> Json:
    """One reviewer's word on one revision."""
    return {
        "id": str(shown.pk),
        "revision": shown.revision,
        "by": shown.reviewer.user.name,
        "verdict": shown.verdict,
        "digest": shown.digest,
        "reason_code": shown.reason_code,
        "reason": shown.reason,
        "at": moment(shown.at),
    }


# Operations.


def operation(shown: Operation, case_: Case, receipt: Any) -> Json:
    """One operation as lists have it."""
    order = shown.order
    return {
        **_operation_of_case(shown, receipt),
        "reason": shown.reason,
        "case": str(case_.pk),
        "case_reference": case_.reference,
        "action": shown.tool.name,
        "action_key": shown.action_key,
        "fingerprint": order.fingerprint,
        "digest": order.digest,
        "resource": shown.resource.name,
        "amount_minor": order.amount_minor,
        "currency": order.currency,
        "token": shown.token,
        "attempt_count": shown.attempt_count,
        "approved_at": moment(order.created_at),
        "links": {"self": operation_link(shown), "case": case_link(case_.pk)},
    }


@dataclass(frozen=True, slots=True)
class History:
    """What is known of one operation beside its row: read together, so that body and tag agree."""

    attempts: Sequence[Attempt]
    evidence: Sequence[Evidence]
    findings: Sequence[Finding]

    attestations: Sequence[Attestation]

    def body(self) -> Json:
        """The history's members of the operation's representation."""
        return {
            "attempts": [_attempt(each) for each in self.attempts],
            "evidence": [_evidence(each) for each in self.evidence],
            "findings": [finding(each) for each in self.findings],
            "attestations": [_attestation(each) for each in self.attestations],
        }


def _attempt(shown: Attempt) -> Json:
    return {
        "number": shown.number,
        "token": shown.token,
        "worker": shown.worker,
        "started_at": moment(shown.started_at),
        "ended_at": moment(shown.ended_at),
        "outcome": shown.outcome,
        "sent": shown.sent,
        "lookups": shown.lookups if shown.ended_at else None,  # counted when it ends
        "receipt": _receipt(shown.receipt),
        "note": shown.note,
    }


def _evidence(shown: Evidence) -> Json:
    return {
        "token": shown.token,
        "worker": shown.worker,
        "outcome": shown.outcome,
        "reference": shown.reference,
        "receipt": _receipt(shown.receipt),
        "note": shown.note,
        "recorded_at": moment(shown.recorded_at),
    }


def _attestation(shown: Attestation) -> Json:
    return {
        "testimony": shown.testimony,
        "attested_by": shown.name,
        "reference": shown.reference,
        "evidence": shown.evidence,
        "settles": shown.token is not None,
        "until": moment(shown.until),
        "at": moment(shown.at),
    }


def finding(shown: Finding) -> Json:
    """A disagreement between ledger and sink."""
    return {
        "id": str(shown.pk),
        "kind": shown.kind,
        "reference": shown.reference,
        "amount_minor": shown.amount_minor,
        "currency": shown.currency,
        "detail": shown.detail,
        "opened_at": moment(shown.opened_at),
        "seen_at": moment(shown.seen_at),
        "closed_at": moment(shown.closed_at),
        "closed_by": shown.closed_by,
        "closed_because": shown.closed_because,
        "links": {
            "case": case_link(shown.subject) if shown.subject is not None else None,
            "operation": operation_link(shown.operation) if shown.operation is not None else None,
        },
    }


def control_event(shown: ControlEvent) -> Json:
    """One thing the controls did."""
    return {
        "id": str(shown.pk),
        "kind": shown.kind,
        "source": shown.source,
        "action": shown.action,
        "key": shown.key,
        "detail": shown.detail,
        "at": moment(shown.at),
        "links": {"case": case_link(shown.subject) if shown.subject is not None else None},
    }


# Tools.


def tool(version: ToolVersion, policy: Policy | None) -> Json:
    """A tool as an agent may propose with it now. ``policy`` is null while nobody could approve it."""
    return {
        "name": version.tool.name,
        "title": version.title,
        "version": version.number,
        "schema": version.schema,
        "sentence": version.sentence,
        "limits": version.value_limits,
        "enforcement": version.enforcement,
        "guarantee": guarantee(version),
        "policy": policy
        and {
            "version": policy.version,
            "risk_tier": policy.tier,
            "approvals_required": policy.approvals_required,
            "expires_after_seconds": int(policy.expires_after.total_seconds()),
        },
    }


def moment(at: datetime | None) -> str | None:
    """RFC 3339 in UTC, to the microsecond as stored."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
