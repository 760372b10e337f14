"""Refusals of acts that are about no case: each is counted by who tried and what, like those about cases."""

from collections.abc import Iterator
from contextlib import contextmanager

from accounts.actors import Actor
from approvals.errors import Refusal
from ledger import control_events


@contextmanager
def counted_act(actor: Actor, action: str) -> Iterator[None]:
    """Counts a refusal in a transaction of its own, after the refused one has rolled back."""
    try:
        yield
    except Refusal as refusal:
        control_events.record(
            tenant_id=actor.tenant_id,
            kind=refusal.counted_as,
            source=actor.source,
            action=action,
            refusal=type(refusal).__name__,
        )
        raise
