"""The story of a case on one line of time: every revision and vote, what became of its operations, what was refused."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from approvals.console.known import Known
from approvals.console.signatures import Shown
from approvals.console.sources import source_in_words, worker_named
from approvals.models import Case, Revision
from approvals.states import Act, Verdict
from approvals.templatetags.states import words
from ledger.models import Attestation, ControlEvent, Finding
from ledger.states import AttemptOutcome, AttestedOutcome, ControlEventKind, FindingKind

_MOST_EVENTS = 50
"""Control events told in one story; a flood of replays must not drown it. The newest are told."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: who, what in words, at which revision, why. ``past`` is another day than today."""

    at: datetime
    who: str
    words: str
    revision: int | None = None
    reason: str = ""

    @property
    def past(self) -> bool:
        """Whether it happened before today, where the page is read."""
        return timezone.localdate(self.at) < timezone.localdate()


def story(
    case: Case, revisions: Sequence[Revision], votes: Sequence[Shown], operations: Sequence[Known]
) -> list[Event]:
    """Everything that is recorded about the case, the newest first."""
    events = [
        *_revisions(revisions),
        *_votes(votes, revisions),
        *_operations(operations),
        *_words(operations),
        *_findings(case),
        *_controls(case.tenant_id, case.pk),
    ]
    return sorted(events, key=lambda event: (event.at, event.revision or 0), reverse=True)


def revisions_of(case: Case) -> list[Revision]:
    """Every revision up to the one the page shows, the oldest first."""
    return list(case.revisions.filter(number__lte=case.revision).order_by("number"))


_DID: Mapping[str, str] = {
    Act.PROPOSED: "proposed it",
    Act.REVISED: "sent a new revision",
    Act.APPROVED: "gave the last approval it needed",
    Act.REJECTED: "rejected it",
    Act.RETURNED: "asked for changes",
    Act.HELD: "put it on hold",
    Act.RELEASED: "released it",
    Act.REVOKED: "revoked the approval",
    Act.REOPENED: "reopened it",
    Act.WITHDRAWN: "withdrew it",
    Act.EXPIRED: "ran out: the deadline has passed",
    Act.LAPSED: "found that an approval no longer stands",
    Act.STOPPED: "stopped it before anything was sent",
    Act.CLAIMED: "took it on",
    Act.EXECUTED: "recorded that it happened",
    Act.FAILED: "recorded that it did not happen",
    Act.LOST_SIGHT: "recorded that the outcome is not known",
    Act.CORRECTED: "found at the sink that it has happened after all",
}


def did(act: str) -> str:
    """What an act was, as a predicate: ``sent a new revision``."""
    return _DID[act]


def who_of(revision: Revision) -> str:
    """Who made a revision, as a subject: a name, or the part of Countersign it was."""
    if revision.actor_kind != "system":
        return revision.actor_name
    return "The clock" if revision.actor_name == "clock" else worker_named(revision.actor_name)


def _revisions(revisions: Sequence[Revision]) -> Iterator[Event]:
    for each in revisions:
        code = f": {words(each.reason_code)}" if each.reason_code else ""
        yield Event(each.at, who_of(each), did(each.act) + code, each.number, each.reason)


def _votes(votes: Sequence[Shown], revisions: Sequence[Revision]) -> Iterator[Event]:
    """Votes that decided nothing by themselves; the others stand in the story as the revision they made."""
    made = {
        (each.number - 1, each.actor_id, _VERDICT_OF.get(each.act))
        for each in revisions
        if each.actor_kind == "person"
    }
    for each in votes:  # the newest first: of one person's words on a revision, the last one made the next
        try:
            made.remove((each.revision, each.member_id, Verdict(each.verdict)))
        except KeyError:
            took_back = each.verdict == Verdict.REVOKE
            did = "took back the approval of" if took_back else "approved"
            yield Event(each.at, each.who, f"{did} revision {each.revision}", reason=each.reason)


_VERDICT_OF: Mapping[str, Verdict] = {
    Act.APPROVED: Verdict.APPROVE,
    Act.REJECTED: Verdict.REJECT,
    Act.RETURNED: Verdict.REQUEST_CHANGES,
    Act.HELD: Verdict.HOLD,
    Act.RELEASED: Verdict.RELEASE,
    Act.REVOKED: Verdict.REVOKE,
    Act.REOPENED: Verdict.REOPEN,
}

_CAME_TO_NOTHING = (AttemptOutcome.NOT_SENT, AttemptOutcome.BUSY, AttemptOutcome.IN_PROGRESS)
"""Outcomes that leave the case where it is, and so no revision behind them."""


def _operations(operations: Sequence[Known]) -> Iterator[Event]:
    for operation in operations:
        for attempt in operation.attempts:
            worker = worker_named(attempt.worker)
            if attempt.number > 1:
                yield Event(
                    attempt.started_at, worker, f"was granted attempt {attempt.number}, token {attempt.token}"
                )
            if attempt.ended_at and attempt.outcome in _CAME_TO_NOTHING:
                yield Event(
                    attempt.ended_at, worker, f"reported: {words(attempt.outcome)}", reason=attempt.note or ""
                )
        for late in operation.evidence:
            refused = (
                f"reported “{words(late.outcome)}” under token {late.token}, too late; it is kept as evidence"
            )
            yield Event(late.recorded_at, worker_named(late.worker), refused)


def _words(operations: Sequence[Known]) -> Iterator[Event]:
    """What people said of an outcome without settling it; a word that settled it is told as its revision."""
    rows = Attestation.objects.filter(operation__in=[each.id for each in operations], token=None)
    for each in rows.order_by("pk"):
        reference = f", reference {each.reference}" if each.reference else ""
        is_open = each.testimony == AttestedOutcome.STILL_UNKNOWN
        waits = "" if is_open else "; it settles nothing until a second person says the same"
        yield Event(
            each.at, each.name, f"said: {words(each.testimony)}{reference}{waits}", reason=each.evidence
        )


def _findings(case: Case) -> Iterator[Event]:
    for each in Finding.objects.filter(tenant_id=case.tenant_id, subject=case.pk).order_by("pk"):
        yield Event(each.opened_at, "Ledger and sink", f"disagree: {words(each.kind)}")
        if each.closed_at:
            yield Event(each.closed_at, "Ledger and sink", f"agree again: {words(each.kind)} is settled")


def _controls(tenant_id: UUID, case_id: int) -> Iterator[Event]:
    events = ControlEvent.objects.filter(tenant_id=tenant_id, subject=case_id).exclude(
        kind=ControlEventKind.FENCED_WRITE  # told above, as the evidence it left
    )
    for each in events.order_by("-pk")[:_MOST_EVENTS]:
        yield Event(each.at, source_in_words(each.source), control_in_words(each))


def control_in_words(event: ControlEvent) -> str:
    """What the controls did about it, as a predicate."""
    detail: Mapping[str, Any] = event.detail
    if event.kind == ControlEventKind.VERSION_CONFLICT and detail.get("seen") is None:
        return f"was stopped: {words(detail.get('reason', 'the resource has moved'))}"
    told = {
        "seen": "?",
        "now": "?",
        "token": "?",
        **detail,
        "reason": words(detail.get("reason", "refused")),
        "refusal": _CAPITAL.sub(" ", str(detail.get("refusal", "Refused"))).lower(),
    }
    return _CONTROLS.get(event.kind, words(event.kind)).format_map(told)


_CAPITAL = re.compile("(?<!^)(?=[A-Z])")

_CONTROLS: Mapping[str, str] = {
    ControlEventKind.REPLAY: "sent the same again: answered with what there is, nothing done twice",
    ControlEventKind.VERSION_CONFLICT: "named revision {seen} when it was at {now}: refused, nothing was recorded",
    ControlEventKind.FINGERPRINT_CONFLICT: "sent other content under the same identity: refused",
    ControlEventKind.FENCED_WRITE: (
        "reported under token {token}, which is no longer the newest: refused, kept as evidence"
    ),
    ControlEventKind.REFUSED_ACT: "was refused ({refusal}): nothing was recorded",
    ControlEventKind.REFUSED_CLAIM: "did not begin: {reason}",
    ControlEventKind.BUDGET_REFUSAL: "could not begin it: a budget has no room; it waits, and nothing was sent",
    ControlEventKind.SERIALIZATION_RETRY: "met others at the same budget and tried the whole claim again",
    ControlEventKind.SERIALIZATION_EXHAUSTED: (
        "used up its retries at a budget that others kept changing: put off, nothing was sent"
    ),
    ControlEventKind.BUSINESS_DUPLICATE: "asked for what the sink had done already: refused, nothing done twice",
    ControlEventKind.EARLIER_EFFECT: "found the effect of an earlier operation at the sink, so it sent nothing",
    ControlEventKind.CORRECTION: "found at the sink what was taken for absent: the outcome is corrected",
    ControlEventKind.BREAKER_OPENED: "paused the tool: its sink kept answering that it could not",
    ControlEventKind.SET_ASIDE: "set it aside: too many workers fell silent over it; a person has to look",
    ControlEventKind.REFUSED_EVENT: "sent an event that could not be verified: refused, nothing was changed",
}

_FINDINGS: Mapping[str, str] = {
    FindingKind.MISSING: "The ledger says that it happened; the sink does not show it.",
    FindingKind.UNRECORDED: "The sink shows an effect that the ledger does not know.",
    FindingKind.TWICE: "The sink shows the effect twice.",
    FindingKind.DIFFERS: "The sink shows the effect with other content.",
    FindingKind.REVERSED: "The sink has reversed the effect.",
    FindingKind.LATE: "A late receipt says otherwise than what was settled.",
    FindingKind.FOREIGN: "The sink shows an effect that was never ours.",
}


def finding_in_words(kind: str) -> str:
    """What ledger and sink disagree about, as a sentence."""
    return _FINDINGS[kind]
