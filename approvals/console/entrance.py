"""Who is at the console: every page and every act needs a signed-in member, and acts for that member's tenant."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from accounts.actors import Actor, person_actor
from accounts.models import Member, Role
from approvals.errors import NotFound

MEMBER = "member_id"
"""The session's key for the membership one acts with; the API reads the same one."""

View = Callable[..., HttpResponse]


@dataclass(frozen=True, slots=True)
class Visitor:
    """A signed-in person in one organisation, with the roles held now."""

    member: Member
    actor: Actor

    @property
    def tenant_id(self) -> UUID:
        """The only organisation this person's pages may show."""
        return self.actor.tenant_id

    @property
    def reviews(self) -> bool:
        """Whether this person may decide at all."""
        return self.actor.has_role(Role.REVIEWER)

    @property
    def roles(self) -> str:
        """The roles held, in words."""
        return " and ".join(sorted(self.actor.roles)) or "a member without a role"


def page(view: View) -> View:
    """A page for members: GET and HEAD only. Without a session one is led to sign in; a live region gets 401."""

    def answer_stranger(request: HttpRequest) -> HttpResponse:
        if request.headers.get("HX-Request"):
            return HttpResponse(status=401)  # a sign-in page must not land inside a table
        return redirect_to_login(request.get_full_path())

    return _door(view, methods=("GET", "HEAD"), answer_stranger=answer_stranger)


def act(view: View) -> View:
    """An act of a member: POST only. Without a session the answer says that nothing was recorded."""

    def answer_stranger(request: HttpRequest) -> HttpResponse:
        context = {"reason": request.POST.get("reason", ""), "back": _page_of_form(request)}
        return render(request, "approvals/signed_out.html", context, status=401)

    return _door(view, methods=("POST",), answer_stranger=answer_stranger)


def _page_of_form(request: HttpRequest) -> str:
    """Where the form stood: the page above its address, or the list it changes."""
    match = request.resolver_match
    of_list = _PAGE_OF_FORM.get(str(match.url_name)) if match else None
    return reverse(of_list) if of_list else f"{request.path.rstrip('/').rpartition('/')[0]}/"


_PAGE_OF_FORM = {
    **dict.fromkeys(("halt", "resume"), "halts"),
    **dict.fromkeys(("make-budget", "replace-budget", "close-budget"), "budgets"),
    **dict.fromkeys(("look-up", "stop", "compensate", "close-finding", "mute-finding"), "reconcile"),
}


def _door(
    view: View, *, methods: tuple[str, ...], answer_stranger: Callable[[HttpRequest], HttpResponse]
) -> View:
    @wraps(view)
    def guarded(request: HttpRequest, **captured: Any) -> HttpResponse:
        if request.method not in methods:
            return not_allowed(request, methods)
        if not request.user.is_authenticated:
            return answer_stranger(request)
        if (visitor := visitor_of(request)) is None:
            return render(request, "approvals/no_organisation.html", status=403)
        try:
            return view(request, visitor, **captured)
        except NotFound as error:
            raise Http404(str(error)) from error

    return guarded


def not_allowed(request: HttpRequest, methods: tuple[str, ...]) -> HttpResponse:
    """405, as a page that says that nothing was recorded."""
    answer = render(request, "errors/405.html", status=405)
    answer.headers["Allow"] = ", ".join(methods)
    return answer


def visitor_of(request: HttpRequest) -> Visitor | None:
    """The member whose session this is; None for a stranger, or where the membership has ended."""
    known: dict[str, Any] = vars(request)
    if "visitor" not in known:
        known["visitor"] = _find_visitor(request)
    visitor: Visitor | None = known["visitor"]
    return visitor


def _find_visitor(request: HttpRequest) -> Visitor | None:
    chosen = request.session.get(MEMBER)
    member = next((each for each in memberships(request) if each.pk == chosen), None)
    return None if member is None else Visitor(member, person_actor(member))


def memberships(request: HttpRequest) -> list[Member]:
    """The active memberships of the person who is signed in, the oldest first."""
    known: dict[str, Any] = vars(request)
    if "memberships" not in known:
        user = getattr(request, "user", None)
        known["memberships"] = memberships_of(user.pk) if user is not None and user.is_authenticated else []
    found: list[Member] = known["memberships"]
    return found


def memberships_of(user_id: int) -> list[Member]:
    """A person's active memberships, the oldest first."""
    return list(
        Member.objects.select_related("tenant", "user")
        .filter(user_id=user_id, is_active=True, user__is_active=True)
        .order_by("pk")
    )
