"""/operations and /resources: what the ledger knows."""

from typing import ClassVar

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from approvals import representations, resolutions
from approvals.api import pages
from approvals.api.endpoint import Endpoint, is_current, snapshot, tagged, unchanged
from approvals.errors import NotFound
from approvals.models import Case
from approvals.representations import History
from ledger import attestations
from ledger.models import Operation, Resource
from ledger.states import OperationState


class Operations(Endpoint):
    """The tenant's operations."""

    query_parameters: ClassVar = (*pages.PARAMETERS, "state", "action", "reference")

    def get(self, request: Request) -> Response:
        """The newest first, filtered by their state, their tool and their case's reference."""
        rows = self._wanted(request)
        with snapshot():
            found, cursor = pages.page(rows, request, by="-pk")
            cases = Case.objects.in_bulk([each.order.subject for each in found])
            receipts = representations.receipts_of(found)
        items = [
            representations.operation(each, cases[each.order.subject], receipts.get(each.pk))
            for each in found
        ]
        return pages.answer(pages.listed(items, cursor, request))

    def _wanted(self, request: Request) -> QuerySet[Operation]:
        tenant_id = self.actor.tenant_id
        rows = Operation.objects.select_related("order", "tool", "resource").filter(
            order__tenant_id=tenant_id
        )
        if state := pages.choice_filter(request, "state", OperationState.values):
            rows = rows.filter(state=state)
        if action := pages.text_filter(request, "action"):
            rows = rows.filter(tool__name=action)
        if reference := pages.text_filter(request, "reference"):
            of_reference = Case.objects.filter(tenant_id=tenant_id, reference=reference)
            rows = rows.filter(order__subject__in=of_reference.values("pk"))
        return rows


class OneOperation(Endpoint):
    """One operation with its attempts, evidence and findings."""

    def get(self, request: Request, key: str) -> Response:
        """The operation of this idempotency key, or 304 where nothing has happened to it since."""
        with snapshot():
            shown = resolutions.visible(actor=self.actor, key=key)
            history = History(
                attempts=list(shown.attempts.order_by("number")),
                evidence=list(shown.evidence.order_by("pk")),
                findings=list(shown.findings.select_related("operation__order").order_by("pk")),
                attestations=list(shown.attestations.order_by("pk")),
            )
            tag = attestations.tag_of(shown)
            if is_current(request, tag):
                return unchanged(tag)
            case = Case.objects.get(pk=shown.order.subject)
            receipt = representations.receipts_of([shown]).get(shown.pk)
            return tagged({**representations.operation(shown, case, receipt), **history.body()}, tag)


class OneResource(Endpoint):
    """What an action touches: the version a proposal may expect, and who holds it."""

    def get(self, request: Request, name: str) -> Response:
        """The resource's version; one that nothing has acted on is at 0, as if it were there."""
        resource = self._named(name)
        holder = resource.holder.order.key if resource.holder else None
        tag = f'"{resource.version}-{holder[:8]}"' if holder else f'"{resource.version}"'
        if is_current(request, tag):
            return unchanged(tag)
        return tagged({"name": resource.name, "version": resource.version, "holder": holder}, tag)

    def _named(self, name: str) -> Resource:
        if "\0" in name:
            raise NotFound("There can be no resource of this name. Check its spelling.")
        return Resource.objects.select_related("holder__order").filter(
            tenant_id=self.actor.tenant_id, name=name
        ).first() or Resource(name=name, version=0)
