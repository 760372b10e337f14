"""What an operator does about a finding: closes it with what settled it, or asks nobody about it any more."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from accounts.actors import Actor
from accounts.models import Role
from approvals.errors import EvidenceRequired, NotFound, NotPermitted, PersonRequired, Refusal
from ledger import control_events, findings
from ledger.models import Finding


def close(*, actor: Actor, finding_id: int, because: str) -> bool:
    """Closes it; returns False where somebody has already.

    Raises NotFound, PersonRequired, NotPermitted and EvidenceRequired; the last two are counted.
    """
    with _acting(actor, finding_id) as shown:
        if not because.strip():
            raise EvidenceRequired("Say what settled it. Nothing was recorded.")
        return findings.close(finding_ids=[shown.pk], by=actor.source, because=because) == 1


def mute(*, actor: Actor, finding_id: int) -> bool:
    """Mutes an open finding about effects that were never ours; False for any other. Raises as ``close``."""
    with _acting(actor, finding_id) as shown:
        return findings.mute(finding_id=shown.pk)


def visible(*, actor: Actor, finding_id: int) -> Finding:
    """The finding of this number, if it is the actor's tenant's. Raises NotFound."""
    its = Finding.objects.select_related("tool").filter(tenant_id=actor.tenant_id, pk=finding_id)
    if (found := its.first()) is None:
        raise NotFound("There is no such finding. List those you can see.")
    return found


@contextmanager
def _acting(actor: Actor, finding_id: int) -> Iterator[Finding]:
    if actor.kind != "person":
        raise PersonRequired("Only a signed-in operator can do this; an agent's key never can.")
    shown = visible(actor=actor, finding_id=finding_id)
    try:
        with transaction.atomic():
            if not actor.has_role(Role.OPERATOR):
                raise NotPermitted("Only an operator can do this. Ask an admin for that role.")
            yield shown
    except Refusal as refusal:
        control_events.record(
            tenant_id=actor.tenant_id,
            kind=refusal.counted_as,
            source=actor.source,
            action=shown.tool.name if shown.tool is not None else "",
            subject=shown.subject,
            refusal=type(refusal).__name__,
            finding=shown.pk,
        )
        raise
