"""Who may stop everything: an operator or an admin halts an organisation or pauses one of its tools, and ends it."""

from datetime import timedelta

from django.db import transaction

from accounts.actors import Actor
from accounts.models import Role
from approvals.counting import counted_act
from approvals.errors import NotFound, NotPermitted, ReasonRequired, StateForbids
from ledger import halts
from ledger.models import Halt, Tool

LONGEST_REASON = 300  # characters
RESTORE = "restore"
"""Who begins the halt of a restored database."""
FENCE = "fence"
"""Who pauses a tool whose sink has seen a higher token than this ledger gave."""


def begin(*, actor: Actor, tool: str | None, reason: str, ends_in: timedelta | None = None) -> Halt:
    """Halts the actor's organisation, or pauses the tool of this name, until somebody ends it.

    Once this has returned nothing new is sent. Raises NotPermitted, NotFound, ReasonRequired; StateForbids where it
    is halted already. A pause that would end by itself, as a breaker's does, is replaced by this one.
    """
    with counted_act(actor, tool or "halt"):
        tool_id = _may(actor, tool)
        if not reason.strip():
            raise ReasonRequired("Say why: whoever finds it halted has to know what to wait for.")
        with transaction.atomic():
            _end_by_itself(actor, tool_id)
            halt = halts.begin(
                tenant_id=actor.tenant_id, tool_id=tool_id, by=actor.source, reason=reason, ends_in=ends_in
            )
            if (halt.began_by, halt.reason) != (actor.source[:120], reason[:LONGEST_REASON]):
                raise StateForbids(f"It stands still already, since {halt.began_by} said: {halt.reason}")
    return halt


def _end_by_itself(actor: Actor, tool_id: int | None) -> None:
    its = halts.open_ones(tenant_id=actor.tenant_id).filter(ends_at__isnull=False)
    if tool_id in its.values_list("tool_id", flat=True):
        halts.end(tenant_id=actor.tenant_id, tool_id=tool_id, by=actor.source)


def end(*, actor: Actor, tool: str | None) -> None:
    """Ends the organisation's halt, or the tool's pause. Raises NotPermitted, NotFound, StateForbids: there is none.

    A restore's halt ends by its own command alone, which first makes sure that the ledger has caught up.
    """
    with counted_act(actor, tool or "halt"):
        tool_id = _may(actor, tool)
        if tool_id is None and _of_restore(actor):
            raise StateForbids(
                "A restore halted it. Run `manage.py after_restore --release`: it checks first."
            )
        if not halts.end(tenant_id=actor.tenant_id, tool_id=tool_id, by=actor.source):
            raise StateForbids("It does not stand still: somebody has ended it already.")


def _of_restore(actor: Actor) -> bool:
    opened = halts.open_ones(tenant_id=actor.tenant_id)
    return opened.filter(tool__isnull=True, began_by=RESTORE).exists()


def may(actor: Actor) -> bool:
    """Whether this actor may begin and end halts."""
    return actor.has_role(Role.OPERATOR, Role.ADMIN)


def _may(actor: Actor, tool: str | None) -> int | None:
    """The tool's number, if there is one to be paused."""
    if not may(actor):
        raise NotPermitted("Only an operator or an admin halts and resumes. Ask one of them.")
    if tool is None:
        return None
    found = Tool.objects.filter(tenant_id=actor.tenant_id, name=tool).first()
    if found is None:
        raise NotFound("There is no such write tool. Open the list of write tools.")
    return found.pk
