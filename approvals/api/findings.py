"""/findings and /control-events: where ledger and sinks disagree, and what the controls refused."""

from typing import ClassVar

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.models import Role
from approvals import disputes, representations
from approvals.api import pages, schemas
from approvals.api.endpoint import Endpoint
from ledger.models import ControlEvent, Finding
from ledger.states import ControlEventKind, FindingKind


class Findings(Endpoint):
    """The tenant's findings."""

    query_parameters: ClassVar = (*pages.PARAMETERS, "kind", "state")

    def get(self, request: Request) -> Response:
        """The newest first; ``state`` is open or closed."""
        rows = Finding.objects.filter(tenant_id=self.actor.tenant_id).select_related("operation__order")
        if kind := pages.choice_filter(request, "kind", FindingKind.values):
            rows = rows.filter(kind=kind)
        if state := pages.choice_filter(request, "state", ["open", "closed"]):
            rows = rows.filter(closed_at__isnull=state == "open")
        found, cursor = pages.page(rows, request, by="-pk")
        return pages.answer(pages.listed([representations.finding(each) for each in found], cursor, request))


class Closure(Endpoint):
    """Closing a finding, by a person."""

    def post(self, request: Request, finding_id: int) -> Response:
        """Closes it with what settled it; one that is closed already stays as it is."""
        person = self.person
        because = ""
        if person.has_role(Role.OPERATOR):  # whoever may not is told so, whatever was sent
            disputes.visible(actor=person, finding_id=finding_id)
            because = schemas.checked(request.data, schemas.CLOSURE)["reason"]
        disputes.close(actor=person, finding_id=finding_id, because=because)
        return Response(representations.finding(Finding.objects.get(pk=finding_id)))


class ControlEvents(Endpoint):
    """What the controls did."""

    query_parameters: ClassVar = (*pages.PARAMETERS, "kind", "source", "action", "case")

    def get(self, request: Request) -> Response:
        """The newest first, filtered by kind, source, action and case."""
        found, cursor = pages.page(self._wanted(request), request, by="-pk")
        items = [representations.control_event(each) for each in found]
        return pages.answer(pages.listed(items, cursor, request))

    def _wanted(self, request: Request) -> QuerySet[ControlEvent]:
        rows = ControlEvent.objects.filter(tenant_id=self.actor.tenant_id)
        if kind := pages.choice_filter(request, "kind", ControlEventKind.values):
            rows = rows.filter(kind=kind)
        for name in ("source", "action"):
            if text := pages.text_filter(request, name):
                rows = rows.filter(**{name: text})
        if case := pages.text_filter(request, "case"):
            rows = rows.filter(
                subject=int(case) if case.isascii() and case.isdigit() and len(case) < 19 else 0
            )
        return rows
