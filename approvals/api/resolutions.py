"""/operations/{key}/lookups, /resolutions, /stop, /compensation: what an operator does about one operation."""

from datetime import datetime

from rest_framework.request import Request
from rest_framework.response import Response

from accounts.actors import Actor
from approvals import compensations, representations, resolutions
from approvals.api import schemas
from approvals.api.cases import case_answer
from approvals.api.endpoint import Endpoint, snapshot
from approvals.api.errors import InvalidRequest
from approvals.models import Case
from approvals.resolutions import Resolved, Word
from approvals.tags import MalformedPrecondition, PreconditionRequired
from ledger import attestations
from ledger.schemas import Fault
from ledger.states import AttestedOutcome


class Lookups(Endpoint):
    """Looking at the sink."""

    def post(self, request: Request, key: str) -> Response:
        """Has the sink asked now, by the next free worker: 202, and the operation as it is."""
        person, seen = self.person, _seen(self.actor, request, key)
        schemas.checked(request.data, schemas.EMPTY)
        return _answer(person, resolutions.look_now(actor=person, key=key, seen=seen), status=202)


class Resolutions(Endpoint):
    """A person's word on the outcome."""

    def post(self, request: Request, key: str) -> Response:
        """Says what happened, from evidence: 200 once it settles it, 202 while it waits for a second person."""
        person, seen = self.person, _seen(self.actor, request, key)
        body = schemas.checked(request.data, schemas.RESOLUTION)
        word = Word(
            testimony=AttestedOutcome(body["testimony"]),
            evidence=body["evidence"],
            reference=body.get("reference", ""),
            until=_time(body["until"]) if "until" in body else None,
        )
        resolved = resolutions.attest(actor=person, key=key, seen=seen, word=word)
        return _answer(person, resolved, status=202 if resolved.waits_for_second else 200)


class Stop(Endpoint):
    """Ending what was never sent."""

    def post(self, request: Request, key: str) -> Response:
        """Ends an operation of which every attempt is proven to have sent nothing."""
        person, seen = self.person, _seen(self.actor, request, key)
        body = schemas.checked(request.data, schemas.STOP)
        resolved = resolutions.stop(actor=person, key=key, seen=seen, reason=body["reason"])
        return _answer(person, resolved)


class Compensation(Endpoint):
    """The case that undoes an effect."""

    def post(self, request: Request, key: str) -> Response:
        """Opens it, or answers with the one there is."""
        body = schemas.checked(request.data, schemas.COMPENSATION)
        opened = compensations.compensate(actor=self.person, key=key, rationale=body.get("rationale", ""))
        return case_answer(self.person, opened.case.pk, replayed=opened.replayed, created=True)


def _time(text: str) -> datetime:
    """RFC 3339 allows what no datetime holds, such as the second 60."""
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError:
        raise InvalidRequest(
            [Fault("/until", "Must be a time this service can hold, such as 2026-12-01T09:00:00Z.")]
        ) from None


def _seen(actor: Actor, request: Request, key: str) -> str:
    """The one entity tag of If-Match, asked for only of those who may know that there is such an operation."""
    resolutions.visible(actor=actor, key=key)
    if (header := request.headers.get("If-Match")) is None:
        raise PreconditionRequired
    tag = header.strip(" \t").removeprefix("W/")
    if len(tag) < 2 or tag[0] != '"' or tag[-1] != '"' or '"' in tag[1:-1]:
        raise MalformedPrecondition
    return tag


def _answer(actor: Actor, resolved: Resolved, *, status: int = 200) -> Response:
    with snapshot():
        shown = resolutions.visible(actor=actor, key=resolved.operation.order.key)
        receipt = representations.receipts_of([shown]).get(shown.pk)
        body = representations.operation(shown, Case.objects.get(pk=shown.order.subject), receipt)
        tag = attestations.tag_of(shown)
    replayed = {"Idempotent-Replayed": "true"} if resolved.replayed else {}
    return Response(body, status=status, headers={"ETag": tag, **replayed})
