"""Theme, shortcuts and live updates: cookies, so that the first paint is right; a script may set the same ones."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme

from approvals.console.entrance import not_allowed

CHOICES = {"theme": ("", "light", "dark"), "shortcuts": ("", "off"), "live": ("", "off")}
"""What each preference can be; empty is the default: the system's theme, shortcuts on, live updates on."""

_ONE_YEAR = 365 * 24 * 60 * 60  # seconds


def preferences(request: HttpRequest) -> HttpResponse:
    """Remembers what was pressed and goes back to the page one was on."""
    if request.method != "POST":
        return not_allowed(request, ("POST",))
    answer = redirect(_way_back(request))
    for name, choices in CHOICES.items():
        value = request.POST.get(name)
        if value in choices:
            answer.set_cookie(
                name, value, max_age=_ONE_YEAR, samesite="Lax", secure=settings.SESSION_COOKIE_SECURE
            )
    return answer


def preference(request: HttpRequest, name: str) -> str:
    """The preference's value; whatever else a cookie of that name holds is the default."""
    value = request.COOKIES.get(name, "")
    return value if value in CHOICES[name] else ""


def _way_back(request: HttpRequest) -> str:
    wanted = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    ):
        return wanted
    return resolve_url("queue")
