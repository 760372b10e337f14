"""Operations of which nobody knows what came, and a browser in which somebody is signed in to settle them."""

from datetime import timedelta
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.db.models import F
from playwright.sync_api import Page
from pytest_django.live_server_helper import LiveServer

from accounts.models import Member
from ledger.claims import Grant
from ledger.models import Attempt, Tool, ToolVersion
from ledger.states import AttemptOutcome
from tests import worlds
from tests.browser_support import NewPage
from tests.worlds import World


def version_with(world: World, **changes: Any) -> None:
    """The refund tool's next version, but for the changes."""
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    newest = tool.versions.latest("number")
    fields = {
        field.name: getattr(newest, field.name)
        for field in ToolVersion._meta.concrete_fields
        if field.name not in ("id", "number", "created_at")
    }
    ToolVersion.objects.create(**{**fields, "number": newest.number + 1, **changes})


def lost(world: World, reference: str = "1842", *, ago: timedelta = timedelta(0), **changes: Any) -> Grant:
    """A grant of which nobody knows what came; its attempt so long ago."""
    grant = worlds.claimed(world, reference, **changes)
    worlds.recorded(grant, AttemptOutcome.UNCERTAIN, wait=900.0, note="The connection was lost.")
    long_ago(grant, ago)
    return grant


def long_ago(grant: Grant, ago: timedelta) -> None:
    """Moves the grant's attempts so far back."""
    with worlds.triggers_off():
        Attempt.objects.filter(operation_id=grant.order_id).update(
            started_at=F("started_at") - ago, ended_at=F("ended_at") - ago
        )


def signed_in(new_page: NewPage, server: LiveServer, member: Member, **options: Any) -> Page:
    """A page of a browser in which the member is signed in."""
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = str(member.user_id)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = member.user.get_session_auth_hash()
    session["member_id"] = member.pk
    session.save()
    page = new_page(base_url=server.url, **options)
    cookie: Any = {"name": settings.SESSION_COOKIE_NAME, "value": session.session_key, "url": server.url}
    page.context.add_cookies([cookie])
    return page
