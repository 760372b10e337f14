"""Operations as the approving side sees them: written with the approval, ended before they start, read."""

from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Now

from ledger.models import Operation, Order, Resource, ToolVersion
from ledger.states import OperationState
from ledger.tools import Rendered


class FingerprintConflict(Exception):
    """This identity already stands for another content. Nothing was written; propose the change as a new revision."""

    def __init__(self, key: str) -> None:
        super().__init__(self.__doc__)
        self.key = key


def write(
    *,
    tenant_id: UUID,
    key: str,
    action_key: str,
    subject: int,
    approved_revision: int,
    fingerprint: str,
    digest: str,
    version: ToolVersion,
    rendered: Rendered,
    expected_version: int | None,
    sink_version: str | None = None,
    agent_id: int | None = None,
    compensates_id: int | None = None,
) -> Operation:
    """Freezes the order and writes its operation, not started, in the approval's transaction.

    Raises FingerprintConflict where the key is taken by other content; the database refuses a second live
    operation of the action (``one_live_operation_per_action``).
    """
    resource = resource_named(tenant_id=tenant_id, name=rendered.resource)
    if (earlier := Order.objects.filter(tenant_id=tenant_id, key=key).first()) is not None:
        if earlier.fingerprint != fingerprint:
            raise FingerprintConflict(key)
        return earlier.operation
    order = Order.objects.create(
        tenant_id=tenant_id,
        key=key,
        fingerprint=fingerprint,
        digest=digest,
        subject=subject,
        approved_revision=approved_revision,
        tool_version=version,
        body=rendered.body,
        amount_minor=rendered.amount_minor,
        currency=rendered.currency,
        expected_version=expected_version,
        sink_version=sink_version,
        agent_id=agent_id,
        compensates_id=compensates_id,
    )
    return Operation.objects.create(
        order=order,
        resource=resource,
        tool=version.tool,
        action_key=action_key,
        due_at=Now() + version.dispatch_delay,
    )


def resource_named(*, tenant_id: UUID, name: str) -> Resource:
    """The tenant's resource of this name, made if absent, whoever else makes it at the same moment."""
    Resource.objects.bulk_create([Resource(tenant_id=tenant_id, name=name)], ignore_conflicts=True)
    return Resource.objects.get(tenant_id=tenant_id, name=name)


def end_unstarted(*, subject: int, reason: str) -> bool:
    """Settles the subject's not-started operation as failed before commit; returns whether there was one.

    The caller holds the case's lock, the claim takes it too: either this ends the operation or the claim starts it.
    """
    ended = Operation.objects.filter(order__subject=subject, state=OperationState.NOT_STARTED).update(
        state=OperationState.FAILED_BEFORE_COMMIT, reason=reason, settled_at=Now(), due_at=None
    )
    return ended == 1


def waiting_subjects() -> QuerySet[Operation, int]:
    """Subjects of operations that are not started; for a filter of the approving side, which alone knows deadlines."""
    return Operation.objects.filter(state=OperationState.NOT_STARTED).values_list("order__subject", flat=True)


def tool_of(order_id: int) -> int:
    """The number of the tool whose operation this is."""
    return Operation.objects.values_list("tool_id", flat=True).get(pk=order_id)


def id_of(*, tenant_id: UUID, key: str) -> int:
    """The number of the order with this idempotency key. Raises Order.DoesNotExist."""
    return Order.objects.values_list("pk", flat=True).get(tenant_id=tenant_id, key=key)
