"""What each enforcement class asks before a request may leave, first or again (docs/protocol.md, Enforcement classes).

A rule answers with what is known already, so that nothing is sent; or with None: the request may leave.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from django.conf import settings

from ledger.claims import Grant
from ledger.states import EnforcementClass
from workers.connectors.answers import (
    Absent,
    Answer,
    Differs,
    Fenced,
    Found,
    NotSent,
    Receipt,
    Refused,
    Uncertain,
    Undone,
)

Look = Callable[[Grant], Found]
"""Asks the sink's own records for the grant's key, or reference."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """The sink shows the effect of an older operation of the same action: this one must not be sent."""

    key: str
    receipt: Receipt


Known = Answer | Differs | Undone | Earlier
"""All that can be known of an operation when its attempt ends."""


def before_send(grant: Grant, look: Look) -> Known | None:
    """What is known, so that nothing is sent; None: the rule of the grant's class lets the request leave."""
    return _RULES[grant.enforcement](grant, look)


def _provider_key(grant: Grant, look: Look) -> Known | None:
    """Looked up by key; absent, and the key still good: the same key again."""
    if grant.maybe_sent and not isinstance(found := look(grant), Absent):
        return found
    return _not_allowed(grant) or _key_is_spent(grant) or _earlier(grant, look)


def _owned_write(grant: Grant, look: Look) -> Known | None:
    """The look-up raises the fence: what is absent then can be done now, or never happens if it is not to be done."""
    if grant.maybe_sent and not isinstance(found := look(grant), Absent):
        return found
    if grant.maybe_sent and grant.lapsed:
        note = "The sink shows no effect behind the raised fence, and the approval no longer stands: it cannot happen."
        return Refused("approval_lapsed", note, final=True)
    return _not_allowed(grant) or _earlier(grant, look)


def _natural_reference(grant: Grant, look: Look) -> Known | None:
    """Read back before the first send, and after it; never sent again by itself."""
    found = look(grant)
    if not grant.maybe_sent:
        return _taken(grant, found) or _not_allowed(grant)
    if not isinstance(found, Absent):
        return found
    left = grant.settle_time - (grant.since_sent or 0.0)
    if left > 0:
        return Uncertain("The sink does not show the reference yet; its records may still settle.", wait=left)
    return Uncertain("The sink does not show the reference, and is not sent it twice: a person decides.")


def _none(grant: Grant, _look: Look) -> Known | None:
    """There is nothing to ask: what may have been sent waits for a person."""
    if grant.maybe_sent:
        note = "It may have been sent, and this sink cannot be asked: a person decides."
        return Uncertain(note, wait=settings.EXECUTION.backoff_most)
    return _not_allowed(grant)


_RULES: dict[EnforcementClass, Callable[[Grant, Look], Known | None]] = {
    EnforcementClass.PROVIDER_KEY: _provider_key,
    EnforcementClass.OWNED_WRITE: _owned_write,
    EnforcementClass.NATURAL_REFERENCE: _natural_reference,
    EnforcementClass.NONE: _none,
}


def _not_allowed(grant: Grant) -> Known | None:
    if grant.may_send:
        return None
    if not grant.maybe_sent:
        return NotSent("The approval does not stand, or nothing may be sent now.")
    return Uncertain("The sink shows no effect, and the approval no longer stands, so nothing is sent again.")


def _key_is_spent(grant: Grant) -> Known | None:
    """Why the same key may not be sent again after a look-up found nothing."""
    if not grant.maybe_sent:
        return None
    if grant.answer_stored:
        return Uncertain(
            "The sink shows no effect, and keeps a failure under this key: a repeat would bring it again."
        )
    if grant.key_window_left is None or grant.key_window_left < settings.EXECUTION.key_margin:
        return Uncertain("The sink shows no effect, and its key window is over, so nothing is sent again.")
    return None


def _earlier(grant: Grant, look: Look) -> Known | None:
    """Looks older operations of the same action up: one of them may have happened after all."""
    for key in grant.earlier_keys:
        found = look(replace(grant, key=key))
        match found:
            case Receipt():
                return Earlier(key, found)
            case Differs(receipt=receipt):
                return Earlier(key, receipt)
            case Fenced():
                return found
            case Uncertain(note=note):
                return NotSent(f"The sink could not be asked for the earlier key {key}: {note}")
    return None


def _taken(grant: Grant, found: Found) -> Known | None:
    """What it means that the sink has the reference although this operation was never sent."""
    match found:
        case Absent():
            return None
        case Uncertain(note=note):
            return NotSent(f"The sink could not be asked for the reference: {note}")
        case Fenced():
            return found
        case Receipt(key=grant.key):
            return found
        case Receipt(key=None) if grant.earlier_keys:
            return Earlier(grant.earlier_keys[-1], found)
    receipt = found if isinstance(found, Receipt) else found.receipt
    if receipt.key in grant.earlier_keys and receipt.key is not None:
        return Earlier(receipt.key, receipt)
    note = f"The sink has this reference already, as {receipt.reference}; it is not ours."
    return Refused("already_at_sink", note)
