"""Decisions: what a person's word on one revision does to the case, and the operation an approval writes.

One function, whatever the door: page, API or batch. All rules stand here or below.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from django.db import IntegrityError, transaction
from django_fsm import can_proceed

from accounts.actors import Actor
from accounts.models import Role
from approvals import cases, deadlines, doorbell, proposals, retention, votes
from approvals.errors import (
    AlreadyDecided,
    AmountMismatch,
    ContentRemoved,
    DeadlinePassed,
    Disputed,
    EarlierOperationLive,
    NotPermitted,
    PersonRequired,
    ReasonRequired,
    SelfApproval,
    VersionConflict,
)
from approvals.models import Case, Revision, Vote
from approvals.states import Act, CaseState, Verdict
from approvals.tags import Tag
from ledger import findings, operations
from ledger.identity import idempotency_key

REASON_TIER = 2
"""From this tier on an approval needs a reason in words."""
AMOUNT_TIER = 3
"""From this tier on an approval needs the amount typed, where the action moves money."""


@dataclass(frozen=True, slots=True)
class Word:
    """What a person says about the revision and digest the page showed. ``typed_amount`` is in minor units."""

    verdict: Verdict
    digest: str
    reason_code: str = ""
    reason: str = ""
    typed_amount: int | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """The case after the word was counted, and whether it had been counted before."""

    case: Case
    replayed: bool


def decide(*, actor: Actor, case_id: int, seen: Tag, word: Word) -> Decided:
    """Records a reviewer's word on the revision he or she saw, and does what the votes now amount to.

    An approval that completes the quorum writes the operation with its order in the same transaction and rings the
    doorbell after the commit. The same word on the same revision again is answered, not refused (a double click).
    Raises NotFound, PersonRequired, NotPermitted, SelfApproval, VersionConflict (counted), and the illegal and
    refused kinds of ``approvals.errors``; whatever is raised, nothing was written.
    """
    if actor.kind != "person":
        raise PersonRequired
    with cases.counted(actor):
        try:
            with transaction.atomic():
                return _decide(actor, case_id, seen, word)
        except IntegrityError as error:
            if "one_live_operation_per_action" not in str(error):
                raise
            raise EarlierOperationLive(case=cases.visible(actor=actor, case_id=case_id)) from error


def _decide(actor: Actor, case_id: int, seen: Tag, word: Word) -> Decided:
    case = cases.locked(actor=actor, case_id=case_id)
    if not actor.has_role(Role.REVIEWER):
        raise NotPermitted(
            "Only a reviewer can decide. Ask an admin of your organisation for that role.", case=case
        )
    if actor.id in (case.agent.owner_id, case.opened_by_id) and word.verdict in (
        Verdict.APPROVE,
        Verdict.RELEASE,
        Verdict.REOPEN,
    ):
        raise SelfApproval(case=case)
    if _said_already(actor, case, seen, word) and not _waits_to_be_counted(case):
        return Decided(case, replayed=True)
    cases.require_seen(case, seen)
    if word.digest != case.proposal.digest:
        raise VersionConflict(case=case, seen_revision=seen.revision)
    _VERDICTS[word.verdict](case, actor, word)
    return Decided(case, replayed=False)


def _said_already(actor: Actor, case: Case, seen: Tag, word: Word) -> bool:
    """Whether this is the reviewer's own last word on that revision once more, and it still stands."""
    last = votes.last_word(case=case, revision=seen.revision, reviewer_id=actor.id)
    if last is None or (last.verdict, last.digest) != (word.verdict, word.digest):
        return False
    if not word.digest.startswith(seen.digest):
        return False
    later = Revision.objects.filter(case=case, number__gt=seen.revision).order_by("number")
    states = list(later.values_list("state", flat=True))
    return not states or (states[0] == _LEADS_TO[word.verdict] and {*states[1:]} <= _CARRIED_OUT)


_LEADS_TO: dict[Verdict, CaseState] = {
    Verdict.APPROVE: CaseState.APPROVED,
    Verdict.REJECT: CaseState.REJECTED,
    Verdict.REQUEST_CHANGES: CaseState.RETURNED,
    Verdict.HOLD: CaseState.HELD,
    Verdict.RELEASE: CaseState.PENDING,
    Verdict.REVOKE: CaseState.PENDING,
    Verdict.REOPEN: CaseState.PENDING,
}
_CARRIED_OUT = {CaseState.EXECUTING, CaseState.UNKNOWN, CaseState.EXECUTED, CaseState.FAILED}
"""What follows from an approval without undoing it."""


def _approve(case: Case, actor: Actor, word: Word) -> None:
    if not can_proceed(case.approve):
        _refuse_decision(case)
    if deadlines.passed(case):
        raise DeadlinePassed(case=case)
    if findings.disputed([case.pk]):
        raise Disputed(case=case)
    _require_what_the_tier_asks(case, word)
    _vote(case, actor, word)
    if _quorum_is_complete(case):
        _complete(case, actor, word)


def _quorum_is_complete(case: Case) -> bool:
    approvals = votes.standing_approvals([(case.pk, case.revision)])[case.pk]
    return len(approvals) >= case.proposal.policy.approvals_required


def _waits_to_be_counted(case: Case) -> bool:
    """Whether approvals are complete that were not when they were given: a reviewer has got the role back since."""
    return case.state == CaseState.PENDING and _quorum_is_complete(case)


def _require_what_the_tier_asks(case: Case, word: Word) -> None:
    tier = case.proposal.policy.tier
    if tier >= REASON_TIER and not word.reason.strip():
        raise ReasonRequired("An approval at this risk tier needs a reason in words.", case=case)
    if (
        tier >= AMOUNT_TIER
        and case.proposal.amount_minor is not None
        and word.typed_amount != case.proposal.amount_minor
    ):
        raise AmountMismatch(case=case)


def _complete(case: Case, actor: Actor, word: Word) -> None:
    """The last vote is in: the case is approved at the next revision, and its operation is written with its order."""
    case.approve()
    cases.record_revision(
        case, act=Act.APPROVED, actor=actor, reason_code=word.reason_code, reason=word.reason
    )
    facts = proposals.facts_of(case)
    key = idempotency_key(
        tenant=case.tenant_id,
        reference=facts.reference,
        action=facts.action,
        target=facts.target,
        step=facts.step,
        approved_revision=case.revision,
    )
    expects = proposals.material(case.proposal)["expects"]
    operations.write(
        tenant_id=case.tenant_id,
        key=key,
        action_key=case.action_key,
        subject=case.pk,
        approved_revision=case.revision,
        fingerprint=case.proposal.fingerprint,
        digest=case.proposal.digest,
        version=case.proposal.tool_version,
        rendered=proposals.rendered_again(case),
        expected_version=expects.get("resource_version"),
        sink_version=expects.get("sink_version"),
        agent_id=case.agent_id,
        compensates_id=case.compensates_id,
    )
    doorbell.ring_on_commit(key=key, fingerprint=case.proposal.fingerprint)


def _reject(case: Case, actor: Actor, word: Word) -> None:
    if not word.reason.strip():
        raise ReasonRequired("Say why: the agent is told the reason.", case=case)
    _move(case, actor, word, case.reject, Act.REJECTED)


def _request_changes(case: Case, actor: Actor, word: Word) -> None:
    if not word.reason.strip():
        raise ReasonRequired("Say what to change: the agent is told.", case=case)
    _move(case, actor, word, case.request_changes, Act.RETURNED)


def _hold(case: Case, actor: Actor, word: Word) -> None:
    _move(case, actor, word, case.hold, Act.HELD)


def _release(case: Case, actor: Actor, word: Word) -> None:
    _move(case, actor, word, case.release, Act.RELEASED)


def _reopen(case: Case, actor: Actor, word: Word) -> None:
    if not word.reason.strip():
        raise ReasonRequired("Say why you take the rejection back.", case=case)
    if can_proceed(case.reopen) and retention.removed(case) is not None:
        raise ContentRemoved(case=case)
    _move(case, actor, word, case.reopen, Act.REOPENED)


def _revoke(case: Case, actor: Actor, word: Word) -> None:
    """Takes an approval back: the reviewer's own before the quorum is complete, the whole before the claim."""
    if case.state == CaseState.PENDING:
        last = votes.last_word(case=case, revision=case.revision, reviewer_id=actor.id)
        if last is None or last.verdict != Verdict.APPROVE:
            _refuse_decision(case)
        _vote(case, actor, word)
        return
    if not can_proceed(case.revoke):
        _refuse_decision(case)
    operations.end_unstarted(subject=case.pk, reason="revoked")
    _move(case, actor, word, case.revoke, Act.REVOKED)


_VERDICTS: dict[Verdict, Callable[[Case, Actor, Word], None]] = {
    Verdict.APPROVE: _approve,
    Verdict.REJECT: _reject,
    Verdict.REQUEST_CHANGES: _request_changes,
    Verdict.HOLD: _hold,
    Verdict.RELEASE: _release,
    Verdict.REVOKE: _revoke,
    Verdict.REOPEN: _reopen,
}


def _move(case: Case, actor: Actor, word: Word, move: Callable[[], None], act: Act) -> None:
    if not can_proceed(move):
        _refuse_decision(case)
    _vote(case, actor, word)
    move()
    cases.record_revision(case, act=act, actor=actor, reason_code=word.reason_code, reason=word.reason)


def _vote(case: Case, actor: Actor, word: Word) -> None:
    Vote.objects.create(
        case=case,
        revision=case.revision,
        reviewer_id=actor.id,
        verdict=word.verdict,
        digest=word.digest,
        reason_code=word.reason_code,
        reason=word.reason,
    )


def _refuse_decision(case: Case) -> NoReturn:
    if case.state in (CaseState.APPROVED, CaseState.REJECTED):
        raise AlreadyDecided(case=case)
    cases.refuse_state(case)
