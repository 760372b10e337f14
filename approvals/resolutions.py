"""An operator's acts on one operation: ask the sink now, say what happened, end what was never sent.

Each names the operation's tag it was decided on: evidence that came meanwhile makes it void, not wrong.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from accounts.actors import Actor
from accounts.models import Role
from approvals import cases, doorbell
from approvals.errors import (
    AlreadyExecuted,
    CannotBeAsked,
    EvidenceRequired,
    InvalidContent,
    NotFound,
    NotPermitted,
    NotPossibleYet,
    OperationMoved,
    PersonRequired,
    ReferenceRequired,
    ReferenceTaken,
    SecondPersonNeeded,
    StateForbids,
)
from approvals.models import Case
from approvals.states import Act
from ledger import attestations, clock
from ledger.claims import GrantLive
from ledger.models import Attestation, Operation
from ledger.picks import QUERIES
from ledger.schemas import Fault
from ledger.states import SETTLED, AttestedOutcome, EnforcementClass, OperationState

_MOST_REFERENCE = 255
_LONGEST_LEFT = timedelta(days=30)
"""For so long at most an outcome is left unknown by one word."""


@dataclass(frozen=True, slots=True)
class Word:
    """What a person says of an outcome, and what it rests on. ``until``: for a word that says *still unknown*."""

    testimony: AttestedOutcome
    evidence: str
    reference: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """The operation after the act; whether it waits for a second person, and whether the act had been made before."""

    operation: Operation
    waits_for_second: bool = False
    replayed: bool = False


def attest(*, actor: Actor, key: str, seen: str, word: Word) -> Resolved:
    """Settles an unresolved operation on a person's word, or keeps the first of two words until a second agrees.

    The word takes a fresh token, so that any worker that still acts is refused. Raises NotFound, PersonRequired,
    NotPermitted, OperationMoved (counted), NotPossibleYet with the reason and the time, EvidenceRequired,
    ReferenceRequired, ReferenceTaken, SecondPersonNeeded; whatever is raised, nothing was written.
    """
    with _acting(actor, key, seen) as here:
        if here.operation.state in SETTLED:
            return _repeated(actor, here, word)
        here.require_seen()
        reference = _reference(here, word)
        if (no := attestations.why_not(here.operation, word.testimony)) is not None:
            raise NotPossibleYet(no.why, case=here.case, until=no.until)
        if word.testimony == AttestedOutcome.STILL_UNKNOWN:
            _require_a_time_to_come(word)
            attestations.keep(
                actor=actor,
                operation=here.operation,
                testimony=word.testimony,
                reference=None,
                evidence=word.evidence,
                until=word.until,
            )
            return Resolved(here.operation)
        if here.operation.order.tool_version.second_person and not _is_second(actor, here, word, reference):
            return Resolved(here.operation, waits_for_second=True)
        return _settle(actor, here, word, reference)


def look_now(*, actor: Actor, key: str, seen: str) -> Resolved:
    """Has the sink asked at once, by the next free worker; what a worker holds is being looked at already.

    What was set aside comes back with it, and what was never sent is tried at once. Raises CannotBeAsked where
    it may have been sent to a sink that nobody can ask.
    """
    with _acting(actor, key, seen) as here:
        here.require_seen()
        if here.operation.state not in (OperationState.STARTED, OperationState.OUTCOME_UNKNOWN):
            raise StateForbids(
                "Only what is started or unknown can be looked up. Read the operation for what is known of it.",
                case=here.case,
            )
        if _cannot_be_asked(here.operation):
            raise CannotBeAsked(case=here.case)
        QUERIES.rows("make_due", orders=[here.operation.pk])
        doorbell.wake_on_commit()
        return Resolved(here.operation)


def _cannot_be_asked(operation: Operation) -> bool:
    """Whether a look would end where it began: what may have been sent, and only a person can find out."""
    promises_nothing = operation.order.tool_version.enforcement == EnforcementClass.NONE
    return promises_nothing and not attestations.was_never_sent(operation)


def stop(*, actor: Actor, key: str, seen: str, reason: str) -> Resolved:
    """Ends an operation of which nothing was ever sent. Raises NotPossibleYet where something may have been."""
    with _acting(actor, key, seen) as here:
        here.require_seen()
        if not reason.strip():
            raise EvidenceRequired("Say why it is stopped: the agent is told.", case=here.case)
        if here.operation.state != OperationState.STARTED:
            raise StateForbids(
                "Only a started operation is stopped here: before that withdraw the case, after that settle it.",
                case=here.case,
            )
        if not attestations.was_never_sent(here.operation):
            raise NotPossibleYet(
                "It may have been sent. Look it up, and settle what came of it.", case=here.case
            )
        try:
            attestations.stop(operation=here.operation)
        except GrantLive as live:
            raise NotPossibleYet(str(live), case=here.case, until=here.operation.due_at) from live
        here.case.fail()
        cases.record_revision(
            here.case, act=Act.STOPPED, actor=actor, reason_code="never_sent", reason=reason
        )
        doorbell.wake_on_commit()  # what waited for the resource can go on
        return Resolved(_read(here.operation.pk))


@dataclass(frozen=True, slots=True)
class _Here:
    operation: Operation
    case: Case
    seen: str

    def require_seen(self) -> None:
        if not attestations.is_as_seen(self.operation, self.seen):
            raise OperationMoved(case=self.case)


@contextmanager
def _acting(actor: Actor, key: str, seen: str) -> Iterator[_Here]:
    """One transaction with resource and case locked, refusals counted after it."""
    if actor.kind != "person":
        raise PersonRequired("Only a signed-in operator can do this; an agent's key never can.")
    with cases.counted(actor), transaction.atomic():
        order_id = visible(actor=actor, key=key).pk
        operation = attestations.locked(order_id)
        case = cases.locked(actor=actor, case_id=operation.order.subject)
        operation.refresh_from_db()
        if not actor.has_role(Role.OPERATOR):
            raise NotPermitted("Only an operator can do this. Ask an admin for that role.", case=case)
        yield _Here(operation, case, seen)


def visible(*, actor: Actor, key: str) -> Operation:
    """The operation of this key, if it is the actor's tenant's. Raises NotFound."""
    found = (
        Operation.objects.select_related("order__tool_version", "tool", "resource")
        .filter(order__tenant_id=actor.tenant_id, order__key=key)
        .first()
    )
    if found is None:
        raise NotFound("There is no such operation. Check the key, or list the operations you can see.")
    return found


def _reference(here: _Here, word: Word) -> str | None:
    """The reference the word names; of a tool whose sink gives none, one that says whose word it is."""
    if not word.evidence.strip():
        raise EvidenceRequired(case=here.case)
    if word.testimony != AttestedOutcome.HAPPENED:
        return None
    given = word.reference.strip()
    if not given and here.operation.order.tool_version.enforcement == EnforcementClass.NONE:
        return f"attested:{here.operation.order.key[:12]}"
    if not given or len(given) > _MOST_REFERENCE or not given.isprintable():
        raise ReferenceRequired(case=here.case)
    if (other := _whose(here, given)) is not None:
        raise ReferenceTaken(
            f"This reference is another operation's already, {other}. {_ONE_EFFECT}", case=here.case
        )
    return given


_ONE_EFFECT = "One effect is not two: look at the sink's record again."


def _whose(here: _Here, reference: str) -> str | None:
    """The key of another operation of the tool that this reference belongs to."""
    others = Operation.objects.filter(tool_id=here.operation.tool_id, reference=reference)
    return others.exclude(pk=here.operation.pk).values_list("order__key", flat=True).first()


def _require_a_time_to_come(word: Word) -> None:
    if word.until is None:
        return
    now = clock.now()
    if not now < word.until <= now + _LONGEST_LEFT:
        words = f"Must be a time to come, at most {_LONGEST_LEFT.days} days from now."
        raise InvalidContent([Fault("/until", words)])


def _is_second(actor: Actor, here: _Here, word: Word, reference: str | None) -> bool:
    """Whether another person has said the same on the same evidence; if nobody has, this word is kept as the first."""
    same = {
        each.member_id
        for each in attestations.standing_words(here.operation)
        if (each.testimony, each.reference) == (word.testimony, reference)
    }
    if same - {actor.id}:
        return True
    if actor.id in same:
        raise SecondPersonNeeded(case=here.case)
    attestations.keep(
        actor=actor,
        operation=here.operation,
        testimony=word.testimony,
        reference=reference,
        evidence=word.evidence,
    )
    return False


def _settle(actor: Actor, here: _Here, word: Word, reference: str | None) -> Resolved:
    happened = word.testimony == AttestedOutcome.HAPPENED
    try:
        with transaction.atomic():
            attestations.settle(
                actor=actor,
                operation=here.operation,
                testimony=word.testimony,
                reference=reference,
                evidence=word.evidence,
            )
    except GrantLive as live:
        raise NotPossibleYet(str(live), case=here.case, until=here.operation.due_at) from live
    except IntegrityError as error:
        if "one_operation_per_sink_reference" not in str(error):
            raise
        raise ReferenceTaken(case=here.case) from error
    if happened:
        here.case.execute()
    else:
        here.case.fail()
    act = Act.EXECUTED if happened else Act.FAILED
    cases.record_revision(here.case, act=act, actor=actor, reason_code="attested", reason=word.evidence)
    doorbell.wake_on_commit()  # what waited for the resource can go on
    return Resolved(_read(here.operation.pk))


def _repeated(actor: Actor, here: _Here, word: Word) -> Resolved:
    """The same word of the same person once more is answered, not refused; another one comes too late."""
    mine = Attestation.objects.filter(
        operation=here.operation, member_id=actor.id, testimony=word.testimony, token__isnull=False
    )
    if mine.exists():
        return Resolved(here.operation, replayed=True)
    if here.operation.state == OperationState.COMMITTED:
        raise AlreadyExecuted(case=here.case)
    raise OperationMoved(case=here.case)


def _read(order_id: int) -> Operation:
    return Operation.objects.select_related("order__tool_version", "tool", "resource").get(pk=order_id)
