"""Cases: proposed, revised, withdrawn, expired. Every write raises the revision by one and leaves its Revision row."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef
from django.db.models.functions import Now
from django_fsm import can_proceed

from accounts.actors import Actor, system_actor
from accounts.models import Role
from approvals import deadlines, proposals
from approvals.errors import (
    AlreadyExecuted,
    ConflictingProposal,
    InProgress,
    InvalidContent,
    NotCompensable,
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
from ledger import clock, control_events, operations, tools
from ledger.models import Operation, Tool
from ledger.schemas import Fault
from ledger.states import ControlEventKind, OperationState


@dataclass(frozen=True, slots=True)
class Proposed:
    """The case an agent's call came to, and whether the call had been answered before."""

    case: Case
    replayed: bool


def propose(*, actor: Actor, facts: Facts, content: Content, compensates: str | None = None) -> Proposed:
    """Opens the case of this action, or answers with the one there is.

    The same facts and material content again: the same case, whatever its state. Other content: ConflictingProposal,
    counted. ``compensates`` is the idempotency key of the committed operation that the action undoes; another case
    may not undo it at the same time (UndoneAlready). Raises InvalidContent, UnknownTool, NotPermitted, NotCompensable.
    """
    if actor.kind != "agent":
        raise NotPermitted("Only an agent proposes. Make a key for one under Agents & keys.")
    with counted(actor):
        undone = _undone(actor, compensates)
        try:
            with transaction.atomic():
                return _existing(actor, facts, content, undone) or Proposed(
                    _open(actor, facts, content, agent_id=actor.id, compensates=_proven(undone)),
                    replayed=False,
                )
        except IntegrityError as error:
            if "one_case_per_action" not in str(error):
                raise
        # The same action was proposed at the same moment, and the other one was first.
        if (first := _existing(actor, facts, content, undone)) is None:
            raise RuntimeError("The case that kept this one from being opened is not there.")
        return first


def _undone(actor: Actor, key: str | None) -> Operation | None:
    """The operation that is to be undone. Raises InvalidContent where the organisation has none of this key."""
    if key is None:
        return None
    operation = Operation.objects.filter(order__tenant_id=actor.tenant_id, order__key=key).first()
    if operation is None:
        raise InvalidContent([Fault("/compensates", "Is the key of no operation you can see.")])
    return operation


def _proven(undone: Operation | None) -> Operation | None:
    """The same, if it has happened. Raises NotCompensable."""
    if undone is not None and undone.state != OperationState.COMMITTED:
        raise NotCompensable(case=Case.objects.get(pk=undone.order.subject))
    return undone


def _existing(actor: Actor, facts: Facts, content: Content, undone: Operation | None) -> Proposed | None:
    case = (
        Case.objects.select_related("proposal__policy", "proposal__tool_version", "agent")
        .filter(tenant_id=actor.tenant_id, action_key=facts.key(actor.tenant_id))
        .first()
    )
    if case is None:
        return None
    if case.proposal.fingerprint != content.fingerprint:
        raise ConflictingProposal(case=case)
    if undone is not None and case.compensates_id != undone.pk:
        raise ConflictingProposal(_UNDOES_SOMETHING_ELSE, case=case)
    control_events.record(
        tenant_id=actor.tenant_id,
        kind=ControlEventKind.REPLAY,
        source=actor.source,
        action=case.action,
        subject=case.pk,
        door="propose",
    )
    return Proposed(case, replayed=True)


_UNDOES_SOMETHING_ELSE = (
    "This action is proposed already, and does not undo that operation. Use another step."
)


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
    # Only what can be ended: any number that stands still must not keep the sweep from the others.
    late = Case.objects.filter(deadlines.PASSED)
    # Two questions: one with OR would read every case there ever was.
    approved = late.filter(state=CaseState.APPROVED, pk__in=operations.waiting_subjects())
    ids = [
        case_id
        for waiting in (late.filter(is_open=True), approved)
        for case_id in waiting.values_list("pk", flat=True)[:most]
    ]
    return sum(_expire(case_id) for case_id in ids[:most])


def expire_failed(*, most: int = 500) -> int:
    """Expires what has failed and was not proposed again within its tool's retry horizon; returns how many cases.

    Looks back over one more horizon: what is older was expired before, unless nobody has looked for as long.
    """
    found: list[tuple[int, datetime]] = []
    now = clock.now()
    for version in tools.newest_versions(Tool.objects.values_list("pk", flat=True)).values():
        over = now - version.retry_horizon
        settled = Operation.objects.filter(
            tool=version.tool_id, settled_at__lte=over, settled_at__gt=over - version.retry_horizon
        ).filter(state=OperationState.FAILED_BEFORE_COMMIT)
        anew = Operation.objects.filter(order__subject=OuterRef("pk"), settled_at__gt=over)
        failed = Case.objects.filter(
            ~Exists(anew), state=CaseState.FAILED, pk__in=settled.values("order__subject")
        )
        found += [(case_id, over) for case_id in failed.values_list("pk", flat=True)[: most - len(found)]]
    return sum(_expire_failed(case_id, over) for case_id, over in found)


def _expire_failed(case_id: int, over: datetime) -> bool:
    with transaction.atomic():
        case = (
            Case.objects.select_for_update(no_key=True, skip_locked=True)
            .filter(pk=case_id, state=CaseState.FAILED)
            .first()
        )
        last = Operation.objects.filter(order__subject=case_id).order_by("-order_id").first()
        if case is None or last is None or last.settled_at is None or last.settled_at > over:
            return False  # worked on at this moment, or it has failed anew since
        case.expire()
        record_revision(case, act=Act.EXPIRED, actor=system_actor("clock", case.tenant_id))
        return True


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
