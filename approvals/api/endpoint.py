"""What every call of the REST interface shares: who calls, which query it takes, how its answers are compared."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from django.db import connection, transaction
from django.utils.cache import patch_vary_headers
from django.utils.http import parse_etags
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.actors import Actor
from approvals import parsers
from approvals.api.errors import InvalidQuery
from approvals.errors import NotPermitted, PersonRequired
from ledger.schemas import Fault


class Endpoint(APIView):
    """One address. A method loads, makes one domain call and renders; refusals are raised, never returned."""

    http_method_names = ["get", "head", "post"]
    query_parameters: ClassVar[tuple[str, ...]] = ()
    """What a GET takes; anything else in a query is refused, so that a misspelt filter never lists everything."""

    def perform_content_negotiation(self, request: Request, force: bool = False) -> tuple[BaseRenderer, str]:
        """JSON, whatever is asked for: there is nothing else."""
        return JSONRenderer(), JSONRenderer.media_type

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticates first, then reads the query, and how long the body is where nobody announced it."""
        super().initial(request, *args, **kwargs)
        parsers.measure_chunked(request._request)  # noqa: SLF001  DRF wraps it, and reads the stream from it
        allowed = self.query_parameters if request.method in ("GET", "HEAD") else ()
        faults = [
            Fault(name, "Is not a parameter of this call." if name not in allowed else "Stands here twice.")
            for name, values in request.query_params.lists()
            if name not in allowed or len(values) > 1
        ]
        if faults:
            raise InvalidQuery(faults)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Response:
        """Answers are one caller's own, and not kept unless they carry a tag to ask again with."""
        answer = super().finalize_response(request, response, *args, **kwargs)
        answer.setdefault("Cache-Control", "no-store")
        patch_vary_headers(answer, ["Authorization", "Cookie"])
        return answer

    @property
    def actor(self) -> Actor:
        """Who is calling."""
        actor = self.request.user
        assert isinstance(actor, Actor)
        return actor

    @property
    def agent(self) -> Actor:
        """The calling agent. Raises NotPermitted for a person: people decide, agents propose."""
        if self.actor.kind != "agent":
            raise NotPermitted("Only an agent can do this. Call with one of its keys.")
        return self.actor

    @property
    def person(self) -> Actor:
        """The calling person. Raises PersonRequired for an agent's key, whatever it may otherwise do."""
        if self.actor.kind != "person":
            raise PersonRequired
        return self.actor


@contextmanager
def snapshot() -> Iterator[None]:
    """All reads inside see one moment, so that a body is never younger or older than the tag that stands for it."""
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def is_current(request: Request, tag: str) -> bool:
    """Whether the caller's If-None-Match names this tag; compared weakly (RFC 9110, 13.1.2)."""
    tags = parse_etags(request.headers.get("If-None-Match", ""))
    return tags == ["*"] or tag in {each.removeprefix("W/") for each in tags}


def tagged(body: Mapping[str, Any], tag: str) -> Response:
    """An answer that can be asked for again by its tag."""
    return Response(body, headers={**_REVALIDATED, "ETag": tag})


def unchanged(tag: str) -> Response:
    """304: what the caller holds under this tag is still so."""
    return Response(status=304, headers={**_REVALIDATED, "ETag": tag})


_REVALIDATED = {"Cache-Control": "private, no-cache"}
