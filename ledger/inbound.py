"""Events that sinks send by themselves: stored as they came, once, and matched to the operation they are about."""

from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from operator import or_

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from ledger import outcomes, picks
from ledger.models import InboundEvent, Operation, Tool
from ledger.states import SETTLED, UNRESOLVED

_PAGE = 200


def store(*, tool: Tool, event_id: str, kind: str, body: str) -> InboundEvent:
    """The event as it came first; the body of a repetition is not looked at."""
    event = InboundEvent(tenant_id=tool.tenant_id, tool=tool, event_id=event_id, kind=kind, body=body)
    InboundEvent.objects.bulk_create([event], ignore_conflicts=True)
    return InboundEvent.objects.get(tool=tool, event_id=event_id)


def match(event: InboundEvent, *, keys: Sequence[str], names: Sequence[str]) -> bool:
    """Ties the event to its tenant's operation with one of the keys; without keys by the sink's own names.

    An unresolved operation that nobody holds becomes due; one that a worker holds does so when its outcome is recorded
    as unknown. Returns whether there is one.
    """
    operation = _by_key(event, keys) if keys else _by_name(event, names)
    if operation is None:
        return False
    with transaction.atomic():
        if operation.state not in SETTLED:
            outcomes.lock(
                [operation.pk]
            )  # a recording under way is waited for, and a later one sees the event
        InboundEvent.objects.filter(pk=event.pk, operation=None).update(operation=operation, matched_at=Now())
        picks.QUERIES.rows("make_due", orders=[operation.pk])
    return True


def _by_key(event: InboundEvent, keys: Sequence[str]) -> Operation | None:
    mine = Operation.objects.filter(order__tenant_id=event.tenant_id, order__key__in=list(keys))
    return mine.order_by("order_id").first()


def _by_name(event: InboundEvent, names: Sequence[str]) -> Operation | None:
    """The operation whose effect it names; else the first unresolved one whose order names what it is about."""
    its = Operation.objects.filter(tool_id=event.tool_id)
    if not names:
        return None
    if (recorded := its.filter(reference__in=list(names)).first()) is not None:
        return recorded
    ordered = reduce(or_, (Q(order__body__contains=f'"{name}"') for name in names))
    return its.filter(ordered, state__in=UNRESOLVED).order_by("order_id").first()


def waiting(*, since: datetime, after: int) -> list[InboundEvent]:
    """A page of events that match nothing yet, received since then, in the order they came."""
    unmatched = InboundEvent.objects.filter(matched_at=None, received_at__gte=since, pk__gt=after)
    return list(unmatched.order_by("pk")[:_PAGE])
