"""Events that a provider sends by itself: verified, stored raw, and then only a doorbell. They write no state.

An event may be early, late, twice, out of order, of another deployment, or forged. The signature scheme is Stripe's
(documentation, "Resolve webhook signature verification errors"), checked by its own SDK.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeGuard

import stripe
from celery import current_app
from django.conf import settings
from django.db import transaction

from ledger import clock, control_events, inbound, sweeps
from ledger.models import InboundEvent, Operation, Tool
from ledger.states import ControlEventKind, OperationState
from ledger.tools import UnknownTool, current_version

DEFAULT_SECRET = "STRIPE_WEBHOOK_SECRET"  # noqa: S105  the name of a variable
KEY_IN_METADATA = "countersign_key"
_SECRET_NAME = re.compile(r"[A-Z][A-Z0-9_]*WEBHOOK_SECRET[A-Z0-9_]*", re.ASCII)
"""Which variables a tool's settings may name: no other secret is ever tried on a stranger's request."""
_KEY = re.compile(r"[0-9a-f]{40}", re.ASCII)
_TOLERANCE = 300
"""Seconds a signature is good for, as the provider recommends."""
_MOST_ID, _MOST_KIND = 255, 100
_MOST_OBJECTS = 50
_RECENT, _WAITED_FOR = timedelta(hours=1), timedelta(days=30)
"""An event that matches nothing is tried again each time for an hour, and twice a day for so many days."""
_TWICE_A_DAY = 43_200.0
_UNDONE = ("failed", "canceled")
_GATHERED = 5
"""Seconds in which events are gathered before the listing is read again."""


class NoHook(LookupError):
    """No tool takes events at this address, or its secret is not configured. Nothing was stored."""


class RefusedEvent(Exception):
    """The signature is not the provider's, or the event cannot be read. Nothing was stored."""


@dataclass(frozen=True, slots=True)
class _Event:
    id: str
    kind: str
    body: str


def receive(*, tool_id: int, payload: bytes, signature: str) -> InboundEvent:
    """Verifies and stores the event, once; then makes the operation it is about due for a look-up, if it is unresolved.

    Raises NoHook, and RefusedEvent (counted).
    """
    tool = Tool.objects.filter(pk=tool_id).first()
    secret = _secret(tool) if tool is not None else ""
    if tool is None or not secret:
        raise NoHook
    try:
        event = _verified(payload, signature, secret)
    except RefusedEvent as refusal:
        _count(tool, str(refusal))
        raise
    stored = inbound.store(tool=tool, event_id=event.id, kind=event.kind, body=event.body)
    if stored.operation_id is None:
        match(stored)
    return stored


def _secret(tool: Tool) -> str:
    """Of the environment; a tool's settings name which, never what."""
    try:
        version = current_version(tenant_id=tool.tenant_id, name=tool.name)
    except UnknownTool:
        return ""
    name = str(version.sink_settings.get("webhook_secret", DEFAULT_SECRET))
    if not _SECRET_NAME.fullmatch(name):
        return ""
    return str(getattr(settings, name, "") or os.environ.get(name, ""))


def _verified(payload: bytes, signature: str, secret: str) -> _Event:
    try:
        stripe.WebhookSignature.verify_header(payload, signature, secret, _TOLERANCE)
        body = payload.decode("utf-8")
        content = json.loads(body)
        event_id, kind = content["id"], content["type"]
    except stripe.SignatureVerificationError as error:
        raise RefusedEvent(f"The signature does not hold: {error.user_message or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RefusedEvent("The event is not a JSON object with an id and a type.") from error
    for text, most in ((event_id, _MOST_ID), (kind, _MOST_KIND)):
        if not (isinstance(text, str) and 0 < len(text) <= most and text.isprintable()):
            raise RefusedEvent("The event's id or type is no text of a sensible length.")
    return _Event(event_id, kind, body)


def _count(tool: Tool, why: str) -> None:
    control_events.record(
        tenant_id=tool.tenant_id,
        kind=ControlEventKind.REFUSED_EVENT,
        source="sink",
        action=tool.name,
        why=why.replace("\x00", "")[:200],
    )


def match(event: InboundEvent) -> bool:
    """Finds the operation that the event speaks of and makes it due; returns whether there is one.

    One that is settled, and of which the event tells otherwise, has the sink's listing read again soon.
    """
    about = list(_objects(event.body))
    keys = [each for one in about if (each := _key(one)) is not None]
    names = [each for one in about for each in map(one.get, ("id", "charge")) if _is_name(each)]
    if not inbound.match(event, keys=keys, names=names):
        return False
    event.refresh_from_db(fields=["operation"])
    if event.operation is not None and any(_tells_otherwise(each, event.operation) for each in about):
        _ring_on_commit(event)
    return True


def _tells_otherwise(about: dict[str, Any], operation: Operation) -> bool:
    """Whether a settled outcome may no longer hold: what happened has failed since, or what failed is there."""
    mine = _key(about) == operation.order.key or about.get("id") == operation.reference
    undone = about.get("status") in _UNDONE
    if operation.state == OperationState.COMMITTED:
        return mine and undone
    return operation.state == OperationState.FAILED_BEFORE_COMMIT and mine and not undone


def _ring_on_commit(event: InboundEvent) -> None:
    """A lost ring costs a day: then all within the tool's retry horizon is looked through anyhow."""
    transaction.on_commit(lambda: _ring(event.pk), robust=True)


def _ring(event_id: int) -> None:
    # In a moment, so that one pass does for all events of a burst.
    current_app.send_task(
        "workers.reconcile_about", args=[event_id], countdown=_GATHERED, ignore_result=True, retry=False
    )


def match_waiting() -> int:
    """Tries again to match events that came before what they are about; returns how many now do."""
    patience = _WAITED_FOR if sweeps.take("match_old_events", every=_TWICE_A_DAY) else _RECENT
    since = clock.now() - patience
    matched, after = 0, 0
    while page := inbound.waiting(since=since, after=after):
        matched += sum(match(event) for event in page)
        after = page[-1].pk
    return matched


def _objects(body: str) -> Iterator[dict[str, Any]]:
    """The event's object, and those it lists: a charge's refunds."""
    try:
        found = json.loads(body)["data"]["object"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if not isinstance(found, dict):
        return
    yield found
    refunds = found.get("refunds")
    listed = refunds.get("data") if isinstance(refunds, dict) else None
    for each in listed[:_MOST_OBJECTS] if isinstance(listed, list) else ():
        if isinstance(each, dict):
            yield each


def _is_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and 0 < len(name) <= _MOST_ID and name.isprintable()


def _key(about: dict[str, Any]) -> str | None:
    metadata = about.get("metadata")
    key = metadata.get(KEY_IN_METADATA) if isinstance(metadata, dict) else None
    return key if isinstance(key, str) and _KEY.fullmatch(key) else None
