"""The Reconcile page's forms: a person's word, a look-up now, a stop, a compensating case, and findings settled."""

from collections.abc import Mapping
from datetime import datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.dateparse import parse_datetime

from accounts.models import Role
from approvals import compensations, disputes, resolutions
from approvals.console import unsettled
from approvals.console.choices import LOOK_LATER, SEND_AGAIN
from approvals.console.entrance import Visitor, act
from approvals.console.forms import Form, answer_refusal, see_other
from approvals.console.known import of_tenant
from approvals.console.reconcile import FINDINGS, address, answer
from approvals.console.told import Answered, news_since
from approvals.errors import (
    EvidenceRequired,
    InvalidContent,
    NotFound,
    NotPermitted,
    NotPossibleYet,
    OperationMoved,
    ReferenceRequired,
    ReferenceTaken,
    Refusal,
)
from approvals.resolutions import Resolved, Word
from approvals.templatetags.times import zoned
from ledger import clock
from ledger.states import AttestedOutcome, OperationState

_MOST_REASON = 2000
_MOST_CLOSING = 500


@act
def resolve(request: HttpRequest, visitor: Visitor, key: str) -> HttpResponse:
    """Records what a person says of the outcome, or has it sent again under the same key."""
    form = Form.read(request, "choice", "reference", "reason", "seen", "at", panel="resolve")
    resolutions.visible(actor=visitor.actor, key=key)
    again = form["choice"] == SEND_AGAIN
    _check(form, again=again)
    if form.errors and _may(visitor):
        return _again(request, visitor, key, form, status=422)
    try:
        if again:
            resolutions.look_now(actor=visitor.actor, key=key, seen=form["seen"])
            words = (
                "It is due now: the next free worker looks, and sends the same key again if nothing is there."
            )
        else:
            word = _word(form)
            resolved = resolutions.attest(actor=visitor.actor, key=key, seen=form["seen"], word=word)
            words = _recorded(resolved, word)
    except Refusal as refusal:
        return _refused(request, visitor, key, form, refusal)
    messages.success(request, words)
    return see_other(address(key))


def _check(form: Form, *, again: bool) -> None:
    if form["choice"] not in (SEND_AGAIN, *_SAYABLE, *LOOK_LATER):
        form.errors["choice"] = "Choose what happened. Nothing was recorded."
    if not again:
        words = "Say what your word rests on: what you looked at, where, and what it showed."
        form.require("reason", longest=_MOST_REASON, words=words)


_SAYABLE = (AttestedOutcome.HAPPENED.value, AttestedOutcome.DID_NOT_HAPPEN.value)


def _word(form: Form) -> Word:
    """What the form says. A choice that is none comes this far only from somebody who may not choose."""
    if form["choice"] in _SAYABLE:
        return Word(AttestedOutcome(form["choice"]), form["reason"], form["reference"])
    later = LOOK_LATER.get(form["choice"])
    until = clock.now() + later if later else None
    return Word(AttestedOutcome.STILL_UNKNOWN, form["reason"], until=until)


def _recorded(resolved: Resolved, word: Word) -> str:
    if resolved.replayed:
        return "You had recorded this already; nothing was done twice."
    if resolved.waits_for_second:
        return "Your word is recorded. It settles nothing until a second person says the same."
    if word.until is not None:
        return f"Recorded as still unknown. Look again at {zoned(word.until)}; the look-ups go on."
    if resolved.operation.state == OperationState.COMMITTED:
        return (
            f"It happened, on your word: {resolved.operation.reference}. A worker that wakes now is refused."
        )
    return "It did not happen, on your word. The agent is told, and may propose it again."


@act
def look_up(request: HttpRequest, visitor: Visitor, key: str) -> HttpResponse:
    """Has the sink asked at once."""
    form = Form.read(request, "seen", "at", panel="look-up")
    try:
        resolutions.look_now(actor=visitor.actor, key=key, seen=form["seen"])
    except Refusal as refusal:
        return _refused(request, visitor, key, form, refusal)
    messages.success(
        request, "The sink is asked now, by the next free worker. Load the page again in a moment."
    )
    return see_other(address(key))


@act
def stop(request: HttpRequest, visitor: Visitor, key: str) -> HttpResponse:
    """Ends what was never sent."""
    form = Form.read(request, "reason", "seen", "at", panel="stop")
    resolutions.visible(actor=visitor.actor, key=key)
    form.require("reason", longest=_MOST_REASON, words="Say why it is stopped: the agent is told.")
    if form.errors and _may(visitor):
        return _again(request, visitor, key, form, status=422)
    try:
        resolutions.stop(actor=visitor.actor, key=key, seen=form["seen"], reason=form["reason"])
    except Refusal as refusal:
        return _refused(request, visitor, key, form, refusal)
    messages.success(request, "It is stopped. Nothing was ever sent, and nothing will be.")
    return see_other(address(key))


@act
def compensate(request: HttpRequest, visitor: Visitor, key: str) -> HttpResponse:
    """Opens the case that undoes a proven effect."""
    form = Form.read(request, "reason", panel="compensate")
    resolutions.visible(actor=visitor.actor, key=key)
    form.require("reason", longest=_MOST_REASON, words="Say why it is to be undone: its reviewer reads it.")
    if form.errors and _may(visitor):
        return _again(request, visitor, key, form, status=422)
    try:
        opened = compensations.compensate(actor=visitor.actor, key=key, rationale=form["reason"])
    except InvalidContent as invalid:
        faults = "; ".join(each.detail for each in invalid.faults[:3])
        return answer_refusal(request, Refusal(f"The tool’s template no longer fits its tool: {faults}"))
    except Refusal as refusal:
        return _refused(request, visitor, key, form, refusal)
    there = "There is a case that undoes it already." if opened.replayed else "The compensating case is open."
    messages.success(request, f"{there} Somebody other than who opened it has to approve it.")
    return see_other(reverse("case", args=[opened.case.pk]))


# What is shared: refusals, and the page again.


def _may(visitor: Visitor) -> bool:
    return visitor.actor.has_role(Role.OPERATOR)


_BESIDE: Mapping[type[Refusal], str] = {
    EvidenceRequired: "reason",
    ReferenceRequired: "reference",
    ReferenceTaken: "reference",
    NotPossibleYet: "choice",
}
"""Refusals that are said beside a field."""


def _refused(request: HttpRequest, visitor: Visitor, key: str, form: Form, refusal: Refusal) -> HttpResponse:
    """The page again, saying why nothing was recorded; what was typed is kept."""
    if isinstance(refusal, NotFound | NotPermitted):
        return answer_refusal(request, refusal)
    if isinstance(refusal, OperationMoved):
        return _moved(request, visitor, key, form)
    words = f"{refusal}"
    if isinstance(refusal, NotPossibleYet) and refusal.until:
        words = f"{words} It can be said from {zoned(refusal.until, 'seconds')} on."
    field = _BESIDE.get(type(refusal), "")
    if field in form.values:
        form.errors[field] = f"{words} Nothing was recorded."
        status = 409 if isinstance(refusal, NotPossibleYet) else 422
        return _again(request, visitor, key, form, status=status)
    return _again(request, visitor, key, form, status=409, notice=words)


def _moved(request: HttpRequest, visitor: Visitor, key: str, form: Form) -> HttpResponse:
    rows = of_tenant(visitor.tenant_id).filter(order__key=key)
    known = unsettled.items(rows)[0].known
    looked = _looked_at(form)
    news = news_since(known, looked) if looked else []
    words = (
        "Something came in after the page was shown to you. Look at it, and say it again if it still holds."
    )
    return answer(request, visitor, key, Answered(form, 412, words, news))


def _looked_at(form: Form) -> datetime | None:
    try:
        at = parse_datetime(form["at"])
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None


def _again(
    request: HttpRequest, visitor: Visitor, key: str, form: Form, *, status: int, notice: str = ""
) -> HttpResponse:
    return answer(request, visitor, key, Answered(form, status, notice))


# Findings.


@act
def close_finding(request: HttpRequest, visitor: Visitor, finding_id: int) -> HttpResponse:
    """Closes a finding with what settled it."""
    form = Form.read(request, "reason", panel="close")
    disputes.visible(actor=visitor.actor, finding_id=finding_id)
    form.require("reason", longest=_MOST_CLOSING, words="Say what settled it. Nothing was recorded.")
    if form.errors and _may(visitor):
        return answer(request, visitor, str(finding_id), Answered(form, 422), view=FINDINGS)
    try:
        closed = disputes.close(actor=visitor.actor, finding_id=finding_id, because=form["reason"])
    except NotPermitted as refusal:
        return answer_refusal(request, refusal)
    if not closed:
        words = "It was settled already, by somebody else."
        return answer(request, visitor, str(finding_id), Answered(form, 409, words), view=FINDINGS)
    messages.success(request, "The finding is settled, and what it kept back goes on.")
    return see_other(f"{reverse('reconcile')}?view={FINDINGS}")


@act
def mute_finding(request: HttpRequest, visitor: Visitor, finding_id: int) -> HttpResponse:
    """Asks nobody about a foreign effect any more."""
    try:
        muted = disputes.mute(actor=visitor.actor, finding_id=finding_id)
    except NotPermitted as refusal:
        return answer_refusal(request, refusal)
    if not muted:
        words = "Only an open finding about an effect that was never ours is muted, once."
        return answer(request, visitor, str(finding_id), Answered(status=409, notice=words), view=FINDINGS)
    messages.success(request, "It is muted: it stays open, and nobody is asked about it.")
    return see_other(f"{reverse('reconcile')}?view={FINDINGS}")
