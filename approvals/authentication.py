"""Who is calling: an agent by one of its keys, or a person by the session of the console. Both become an Actor."""

from typing import Any

from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication, CSRFCheck
from rest_framework.exceptions import AuthenticationFailed, UnsupportedMediaType
from rest_framework.request import Request, is_form_media_type

from accounts import keys
from accounts.actors import Actor, agent_actor, person_actor
from accounts.models import Member
from approvals.api.errors import ForgedForm

_REALM = 'Bearer realm="countersign"'


class AgentKeyAuthentication(BaseAuthentication):
    """``Authorization: Bearer cs_<prefix>_<secret>`` (RFC 6750), looked up at every call: revoked is dead at once."""

    def authenticate(self, request: Request) -> tuple[Actor, None] | None:
        """The agent behind the key; None without the header, so that a session may speak; 401 for any other."""
        header = request.headers.get("Authorization")
        if header is None:
            return None
        scheme, _, presented = header.partition(" ")
        agent = keys.authenticate(presented.strip(" ")) if scheme.lower() == "bearer" else None
        if agent is None:
            raise AuthenticationFailed
        return agent_actor(agent), None

    def authenticate_header(self, request: Request) -> str:
        """The challenge of a 401; it says so where a key was sent and is not good."""
        return f'{_REALM}, error="invalid_token"' if "Authorization" in request.headers else _REALM


class PersonAuthentication(BaseAuthentication):
    """The console's session, acting for the membership it was signed in with, with the roles held now."""

    def authenticate(self, request: Request) -> tuple[Actor, None] | None:
        """The member; None without a live session. A write needs the session's CSRF token, else ForgedForm."""
        plain = request._request  # noqa: SLF001  DRF's own `user` is what is being found out here
        if (member := _member(plain)) is None:
            return None
        _require_csrf_token(plain)
        return person_actor(member), None


def _member(request: HttpRequest) -> Member | None:
    if not request.user.is_authenticated:
        return None
    return (
        Member.objects.select_related("user")
        .filter(
            pk=request.session.get("member_id", 0), user=request.user, is_active=True, user__is_active=True
        )
        .first()
    )


def _require_csrf_token(request: HttpRequest) -> None:
    """The token comes in X-CSRFToken: Django would look into a form for it, and forms are no bodies here."""
    media_type = request.content_type or ""
    if request.method == "POST" and is_form_media_type(media_type):
        raise UnsupportedMediaType(media_type)

    def unused(_request: HttpRequest) -> Any: ...

    check = CSRFCheck(unused)
    check.process_request(request)
    if check.process_view(request, unused, (), {}):
        raise ForgedForm
