"""Cases: proposed, revised, withdrawn, expired. Every write raises the revision by one and leaves its Revision row."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django_fsm import can_proceed

from accounts.actors import Actor, system_actor
from accounts.models import Role
from approvals import deadlines, proposals
from approvals.errors import (
    AlreadyExecuted,
    ConflictingProposal,
    InProgress,
    NotFound,
    NotPermitted,
    Refusal,
    StateForbids,
    UndoneAlready,
    VersionConflict,
)
from approvals.models import Case, Revision
from approvals.proposals import Content, Facts
from approvals.states import OPEN, Act, CaseState
from approvals.tags import Tag
from ledger import control_events, operations
from ledger.models import Operation
from ledger.states import ControlEventKind


@dataclass(frozen=True, slots=True)
class Proposed:
    """The case an agent's call came to, and whether the call had been answered before."""

    case: Case
    replayed: bool


def propose(*, actor: Actor, facts: Facts, content: Content) -> Proposed:
    """Opens the case of this action, or answers with the one there is.

    The same facts and material content again: the same case, whatever its state. Other content: ConflictingProposal,
    counted. Raises InvalidContent, UnknownTool, NotPermitted.
    """
    if actor.kind != "agent":
        raise NotPermitted("Only an agent proposes. Make a key for one under Agents & keys.")
    with counted(actor):
        try:
            with transaction.atomic():
                return _existing(actor, facts, content) or Proposed(
                    _open(actor, facts, content, agent_id=actor.id), replayed=False
                )
        except IntegrityError as error:
            if "one_case_per_action" not in str(error):
                raise
        # The same action was proposed at the same moment, and the other one was first.
        if (first := _existing(actor, facts, content)) is None:
            raise RuntimeError("The case that kept this one from being opened is not there.")
        return first


def _existing(actor: Actor, facts: Facts, content: Content) -> Proposed | None:
    case = (
        Case.objects.select_related("proposal__policy", "proposal__tool_version", "agent")
        .filter(tenant_id=actor.tenant_id, action_key=facts.key(actor.tenant_id))
        .first()
    )
    if case is None:
        return None
    if case.proposal.fingerprint != content.fingerprint:
        raise ConflictingProposal(case=case)
    control_events.record(
        tenant_id=actor.tenant_id,
        kind=ControlEventKind.REPLAY,
        source=actor.source,
        action=case.action,
        subject=case.pk,
        door="propose",
    )
    return Proposed(case, replayed=True)


def open_compensation(
    *, actor: Actor, undone: Case, operation: Operation, facts: Facts, content: Content
) -> Case:
    """Opens the case that undoes an operation, in the place of the agent whose case it was."""
    return _open(
        actor, facts, content, agent_id=undone.agent_id, compensates=operation, opened_by_id=actor.id
    )


def _open(actor: Actor, facts: Facts, content: Content, *, agent_id: int, **links: Any) -> Case:
    proposal, _rendered = proposals.draft(tenant_id=actor.tenant_id, facts=facts, content=content)
    proposal.save(force_insert=True)
    case = Case.objects.create(
        tenant_id=actor.tenant_id,
        agent_id=agent_id,
        **links,
        tool=proposal.tool_version.tool,
        reference=facts.reference,
        action=facts.action,
        target=facts.target,
        step=facts.step,
        action_key=facts.key(actor.tenant_id),
        proposal=proposal,
    )
    _append(case, act=Act.PROPOSED, actor=actor)
    return case


def revise(*, actor: Actor, case_id: int, seen: Tag, content: Content) -> Proposed:
    """Puts new content in place of the revision the agent saw, or proposes it again where nothing came of it.

    Earlier votes no longer count. The same revision sent twice is answered once more. Raises NotFound,
    VersionConflict (counted), InProgress, AlreadyExecuted, StateForbids, InvalidContent.
    """
    with counted(actor), transaction.atomic():
        case = locked(actor=actor, case_id=case_id)
        if actor.kind != "agent" or case.agent_id != actor.id:
            raise NotPermitted("Only the agent that proposed this case can revise it.", case=case)
        if _my_act(actor, case, seen, {Act.REVISED, Act.PROPOSED}) and _says_the_same(case, content):
            return Proposed(case, replayed=True)
        require_seen(case, seen)
        if can_proceed(case.revise):
            act = Act.REVISED
            case.revise()
        elif can_proceed(case.propose_again):
            act = Act.PROPOSED
            case.propose_again()
        else:
            refuse_state(case)
        proposal, _rendered = proposals.draft(
            tenant_id=actor.tenant_id, facts=proposals.facts_of(case), content=content
        )
        proposal.save(force_insert=True)
        case.proposal = proposal
        record_revision(case, act=act, actor=actor)
        return Proposed(case, replayed=False)


def withdraw(*, actor: Actor, case_id: int, seen: Tag, reason: str = "") -> Proposed:
    """Takes the action back before any worker has claimed it; by its agent or by a reviewer.

    Raises NotFound, NotPermitted, VersionConflict (counted), InProgress after the claim, AlreadyExecuted, StateForbids.
    """
    with counted(actor), transaction.atomic():
        case = locked(actor=actor, case_id=case_id)
        if not (actor.has_role(Role.REVIEWER) or (actor.kind == "agent" and case.agent_id == actor.id)):
            raise NotPermitted(case=case)
        if _my_act(actor, case, seen, {Act.WITHDRAWN}):
            return Proposed(case, replayed=True)
        require_seen(case, seen)
        if not can_proceed(case.withdraw):
            refuse_state(case)
        operations.end_unstarted(subject=case.pk, reason="withdrawn")
        case.withdraw()
        record_revision(case, act=Act.WITHDRAWN, actor=actor, reason=reason)
        return Proposed(case, replayed=False)


def expire_due(*, most: int = 500) -> int:
    """Expires what its deadline has overtaken, not yet claimed; returns how many cases. Silence is never consent."""
    late = Case.objects.filter(proposal__expires_at__lte=Now())
    # Two questions: one with OR would read every case there ever was.
    approved = late.filter(state=CaseState.APPROVED, pk__in=operations.waiting_subjects())
    ids = [
        case_id
        for waiting in (late.filter(is_open=True), approved)
        for case_id in waiting.values_list("pk", flat=True)[:most]
    ]
    return sum(_expire(case_id) for case_id in ids[:most])


def _expire(case_id: int) -> bool:
    with transaction.atomic():
        case = (
            Case.objects.select_related("proposal")
            .select_for_update(of=("self",), no_key=True, skip_locked=True)
            .filter(pk=case_id, state__in=[*OPEN, CaseState.APPROVED], proposal__expires_at__lte=Now())
            .first()
        )
        if case is None:  # decided, claimed or being worked on at this moment; the next sweep looks again
            return False
        if not deadlines.passed(
            case
        ):  # the organisation or the tool stood still, and the deadline is later by that
            return False
        operations.end_unstarted(subject=case.pk, reason="expired")
        case.expire()
        record_revision(case, act=Act.EXPIRED, actor=system_actor("clock", case.tenant_id))
        return True


# What every act on a case shares.


def visible(*, actor: Actor, case_id: int) -> Case:
    """The case, if it is the actor's tenant's; an agent sees its tenant's cases. Raises NotFound."""
    case = (
        Case.objects.select_related("proposal__policy", "proposal__tool_version__tool", "agent__owner__user")
        .filter(tenant_id=actor.tenant_id, pk=case_id)
        .first()
    )
    if case is None:
        raise NotFound
    return case


def locked(*, actor: Actor, case_id: int) -> Case:
    """The visible case, its row locked until the transaction ends. Raises NotFound."""
    row = Case.objects.select_for_update(no_key=True).filter(tenant_id=actor.tenant_id, pk=case_id)
    if not row.values_list("pk", flat=True):
        raise NotFound
    # A second statement: one that joins while it waits finds no case where the winner has put a new proposal.
    return Case.objects.select_related("proposal__policy", "proposal__tool_version__tool", "agent").get(
        pk=case_id
    )


def require_seen(case: Case, seen: Tag) -> None:
    """Raises VersionConflict unless the case is still what the actor saw."""
    if not seen.matches(case):
        raise VersionConflict(case=case, seen_revision=seen.revision)


def refuse_state(case: Case) -> NoReturn:
    """Raises the refusal that says best why this state allows no such act."""
    if case.state in (CaseState.EXECUTING, CaseState.UNKNOWN):
        raise InProgress(case=case)
    if case.state == CaseState.EXECUTED:
        raise AlreadyExecuted(case=case)
    raise StateForbids(f"A case that is {case.state} cannot be changed this way.", case=case)


def record_revision(case: Case, *, act: Act, actor: Actor, reason_code: str = "", reason: str = "") -> None:
    """Writes the case as its move left it: one revision up, its Revision row beside it, in the caller's transaction."""
    written = Case.objects.filter(pk=case.pk, revision=case.revision).update(
        state=case.state, proposal=case.proposal, revision=case.revision + 1
    )
    if written != 1:  # the caller holds the row's lock, so this is a fault of ours, not a race
        raise RuntimeError(f"Case {case.pk} was not at revision {case.revision}.")
    case.revision += 1
    _append(case, act=act, actor=actor, reason_code=reason_code, reason=reason)


def _append(case: Case, *, act: Act, actor: Actor, reason_code: str = "", reason: str = "") -> None:
    Revision.objects.create(
        case=case,
        number=case.revision,
        state=case.state,
        act=act,
        proposal=case.proposal,
        actor_kind=actor.kind,
        actor_id=actor.id,
        actor_name=actor.name,
        reason_code=reason_code,
        reason=reason,
    )


def _says_the_same(case: Case, content: Content) -> bool:
    said = (case.proposal.fingerprint, case.proposal.rationale, case.proposal.evidence)
    return said == (content.fingerprint, content.rationale, list(content.evidence))


def _my_act(actor: Actor, case: Case, seen: Tag, acts: set[Act]) -> bool:
    """Whether the case stands where this actor's same act on that revision left it: a repeat, not a conflict."""
    return (
        case.revision == seen.revision + 1
        and Revision.objects.filter(
            case=case, number=seen.revision, proposal__digest__startswith=seen.digest
        ).exists()
        and Revision.objects.filter(
            case=case, number=case.revision, act__in=acts, actor_kind=actor.kind, actor_id=actor.id
        ).exists()
    )


@contextmanager
def counted(actor: Actor) -> Iterator[None]:
    """Counts a refusal about a case in a transaction of its own, after the refused one has rolled back."""
    try:
        yield
    except IntegrityError as error:
        if "one_live_compensation_per_effect" not in str(error):
            raise
        raise UndoneAlready from error
    except Refusal as refusal:
        if refusal.case is not None:
            control_events.record(
                tenant_id=actor.tenant_id,
                kind=refusal.counted_as,
                source=actor.source,
                action=refusal.case.action,
                subject=refusal.case.pk,
                refusal=type(refusal).__name__,
                seen=refusal.seen_revision,
                now=refusal.case.revision,
            )
        raise
