"""A person's word on an outcome that no sink could tell: when it may be given, and what it makes of the operation.

It takes a fresh token first, so that whoever still acts under an old one is refused; it stays visible as what it is
(docs/protocol.md, A person's word).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from accounts.actors import Actor
from accounts.models import Role
from ledger import budgets, claims, clock, outcomes
from ledger.models import Attempt, Attestation, Evidence, Operation
from ledger.picks import QUERIES
from ledger.states import NEVER_SENT, SETTLED, AttestedOutcome, EnforcementClass, OperationState


@dataclass(frozen=True, slots=True)
class NotYet:
    """Why a word may not be given now, and from when on it may; ``until`` is None where time alone changes nothing."""

    why: str
    until: datetime | None = None


def tag_of(operation: Operation) -> str:
    """The operation's entity tag: changes with state, send, evidence, finding, grant and word.

    Not by a renewal, nor by a look-up that found nothing: whoever decides on the page all night long must not be told
    that it has changed because it was looked up and is as it was. The last part is left out by ``is_as_seen``.
    """
    mattering = operation.attempts.exclude(_CAME_TO_NOTHING)
    if held := _is_held(operation):  # nobody's act goes through meanwhile; what comes of it counts at its end
        mattering = mattering.exclude(ended_at=None)
    counts = (
        mattering.count(),
        mattering.filter(ended_at__isnull=False).count(),
        operation.evidence.count(),
        operation.findings.count(),
        operation.findings.filter(closed_at__isnull=False).count(),
    )
    last = f"{operation.attestations.count()}{'h' if held else ''}"
    return f'"{".".join(map(str, counts))}-{operation.state}-{last}"'


_CAME_TO_NOTHING = Q(ended_at__isnull=False, sent=False, receipt=None)
"""Attempts that sent nothing and brought nothing: empty look-ups, and connections that did not come about."""


def is_as_seen(operation: Operation, seen: str) -> bool:
    """Whether nothing has come in since somebody saw this tag, but for words: two people may say theirs at once.

    A grant that is live is no news either: who acts meanwhile is told that a worker holds it, and until when.
    """
    return seen.rpartition("-")[0] == tag_of(operation).rpartition("-")[0]


def evidence_tag(operation: Operation) -> str:
    """What a first word rests on: void once it may have been sent again, or a report, receipt or finding has come."""
    told = operation.attempts.filter(outcome__isnull=False, receipt__isnull=False).count()
    counts = (_sends(operation), operation.evidence.count(), told, operation.findings.count())
    return "-".join(map(str, counts))


def _sends(operation: Operation) -> int:
    """Attempts that may have sent, but for the one that is being made: it may be a look-up."""
    sent = operation.attempts.filter(_MAYBE_SENT)
    return (sent.exclude(outcome=None) if _is_held(operation) else sent).count()


def _is_held(operation: Operation) -> bool:
    return operation.worker is not None and operation.due_at is not None and operation.due_at > clock.now()


def why_not(operation: Operation, testimony: AttestedOutcome) -> NotYet | None:
    """Why this word cannot be given on the operation now, or None. The pages and the REST interface ask the same."""
    if operation.state in SETTLED:
        return NotYet("It is settled already.")
    if operation.state == OperationState.NOT_STARTED:
        return NotYet("Nothing was sent. Withdraw the case, or take the approval back.")
    if _is_held(operation):
        return NotYet("A worker holds it at this moment; wait for what it records.", operation.due_at)
    if testimony == AttestedOutcome.DID_NOT_HAPPEN:
        return _why_it_may_have_happened(operation)
    return None


def _why_it_may_have_happened(operation: Operation) -> NotYet | None:
    """It did not happen can only be said when nobody can act any more."""
    version = operation.order.tool_version
    if version.enforcement == EnforcementClass.OWNED_WRITE:
        return NotYet("Its own database settles it: look it up, and it is done or it can never happen.")
    if (late := operation.evidence.filter(reference__isnull=False).last()) is not None:
        return NotYet(
            f"A worker reported {late.reference} after it had lost its lease. Look it up at the sink."
        )
    sent = list(operation.attempts.filter(_MAYBE_SENT).order_by("number"))
    if not sent:
        return None
    until = _nobody_acts_from(operation, sent)
    if until <= clock.now():
        return None
    if version.enforcement == EnforcementClass.PROVIDER_KEY:
        return NotYet(
            "The provider still keeps the key: until then the same key can be sent again safely.", until
        )
    return NotYet("The last request may still be on its way.", until)


_MAYBE_SENT = (Q(sent=True) | Q(sent=None)) & (Q(outcome=None) | ~Q(outcome__in=NEVER_SENT))


def _nobody_acts_from(operation: Operation, sent: list[Attempt]) -> datetime:
    """The end of the key window; else the longest call and the settle time after the last lease."""
    version = operation.order.tool_version
    ended = sent[-1].ended_at or operation.due_at or clock.now()
    until = ended + timedelta(seconds=settings.EXECUTION.call_timeout) + version.settle_time
    if version.key_window is not None:
        until = max(until, sent[0].started_at + version.key_window)
    return until


def standing_words(operation: Operation) -> list[Attestation]:
    """The words that wait for a second person: each one's last, on the evidence as it is, of those who still may."""
    last_words = (
        Attestation.objects.select_related("member__user")
        .filter(operation=operation, token=None, tag=evidence_tag(operation))
        .order_by("member_id", "-pk")
        .distinct("member_id")
    )
    return sorted(
        (each for each in last_words if each.testimony != AttestedOutcome.STILL_UNKNOWN and _still_may(each)),
        key=lambda word: word.pk,
    )


def _still_may(word: Attestation) -> bool:
    member = word.member
    return member.is_active and member.user.is_active and Role.OPERATOR in member.roles


def keep(
    *,
    actor: Actor,
    operation: Operation,
    testimony: AttestedOutcome,
    reference: str | None,
    evidence: str,
    token: int | None = None,
    until: datetime | None = None,
) -> Attestation:
    """Writes the word down. Without a token it settles nothing yet."""
    return Attestation.objects.create(
        operation=operation,
        testimony=testimony,
        member_id=actor.id,
        name=actor.name,
        reference=reference,
        evidence=evidence,
        tag=evidence_tag(operation),
        token=token,
        until=until,
    )


def settle(
    *, actor: Actor, operation: Operation, testimony: AttestedOutcome, reference: str | None, evidence: str
) -> Attestation:
    """Settles an unresolved operation on a person's word, under a fresh token; its resource is locked by the caller.

    Raises GrantLive; IntegrityError ``one_operation_per_sink_reference`` where the reference is another operation's.
    """
    happened = testimony == AttestedOutcome.HAPPENED
    token = claims.take_for_word(order_id=operation.pk)
    word = keep(
        actor=actor,
        operation=operation,
        testimony=testimony,
        reference=reference,
        evidence=evidence,
        token=token,
    )
    written = QUERIES.rows(
        "settle_on_a_word",
        order_id=operation.pk,
        token=token,
        state=(OperationState.COMMITTED if happened else OperationState.FAILED_BEFORE_COMMIT).value,
        reference=reference if happened else None,
        reason=None if happened else "attested",
    )
    if len(written) != 1:
        raise RuntimeError(f"Operation {operation.pk} was not under token {token}.")
    _let_go(operation.pk, happened=happened)
    return word


def stop(*, operation: Operation) -> None:
    """Ends an operation of which nothing was ever sent, under a fresh token. Raises GrantLive."""
    token = claims.take_for_word(order_id=operation.pk)
    written = QUERIES.rows(
        "settle_on_a_word",
        order_id=operation.pk,
        token=token,
        state=OperationState.FAILED_BEFORE_COMMIT.value,
        reference=None,
        reason="never_sent",
    )
    if len(written) != 1:
        raise RuntimeError(f"Operation {operation.pk} was not under token {token}.")
    _let_go(operation.pk, happened=False)


def _let_go(order_id: int, *, happened: bool) -> None:
    committed = [order_id] if happened else []
    QUERIES.rows("settle_resources", committed=committed, final=[order_id])
    budgets.settle(orders=[order_id], committed=committed)


def was_never_sent(operation: Operation) -> bool:
    """Whether every attempt is proven to have sent nothing."""
    return not operation.attempts.filter(_MAYBE_SENT).exists()


def correct(*, operation: Operation, reference: str, receipt: str | None, source: str) -> None:
    """The sink's own record shows the effect of an operation taken for failed: committed after all, and its evidence.

    The caller has locked resource and case, and knows that no other operation of the action is live.
    """
    Evidence.objects.create(
        operation=operation,
        token=operation.token or 0,
        worker=source[:100],
        outcome="committed",
        reference=reference,
        receipt=receipt,
        note="The sink's own record shows it under this key.",
    )
    written = QUERIES.rows("correct_operation", order_id=operation.pk, reference=reference)
    if len(written) != 1:
        raise RuntimeError(f"Operation {operation.pk} was not failed before commit.")
    budgets.book(operation.order)


def locked(order_id: int) -> Operation:
    """The operation, its resource locked until the transaction ends: no grant can be given meanwhile."""
    outcomes.lock([order_id])
    return Operation.objects.select_related("order__tool_version", "tool", "resource").get(pk=order_id)
