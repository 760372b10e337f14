"""The pages of oversight in a real browser: readable by everybody in both themes, and no wider than a phone."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.db import connection
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from ledger import halts
from tests.browser_support import NewPage, Watch, accessibility_problems
from tests.console.overseen import overseen
from tests.worlds import World

pytestmark = pytest.mark.django_db(transaction=True)

PAGES = [
    "/metrics/?window=24h",
    "/metrics/decisions/",
    "/conflicts/",
    "/conflicts/?view=findings",
    "/tools/",
    "/tools/refund/",
    "/halts/",
    "/budgets/",
]
WIDER_THAN_THE_SCREEN = "document.documentElement.scrollWidth - innerWidth"


@pytest.fixture(autouse=True, scope="module")
def the_connection_beside_the_browsers_loop(
    chromium: Any, django_db_setup: None, django_db_blocker: Any
) -> Iterator[None]:
    """While an event loop runs in this thread, Django gives it another connection: it must end too."""
    with django_db_blocker.unblock():
        yield
        connection.close()


def signed_in(new_page: NewPage, server: LiveServer, world: World, **options: Any) -> Page:
    member = world.member("admin")
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


def test_pages_of_oversight_are_readable_in_both_themes_and_fit_a_phone(
    new_page: NewPage, live_server: LiveServer, world: World, watch: Watch
) -> None:
    overseen(world)
    # axe itself writes inline styles; a colour that is on its way to another is not judged
    page = signed_in(new_page, live_server, world, bypass_csp=True, reduced_motion="reduce")
    wrong = []
    for url in PAGES:
        page.set_viewport_size({"width": 1360, "height": 900})
        page.goto(url)
        page.emulate_media(color_scheme="light")
        wrong += [f"{url}: {each}" for each in accessibility_problems(page)]
        page.emulate_media(color_scheme="dark")
        wrong += [f"{url} dark: {each}" for each in accessibility_problems(page, only=["color-contrast"])]
        for width in (390, 320):
            page.set_viewport_size({"width": width, "height": 844})
            if over := page.evaluate(WIDER_THAN_THE_SCREEN):
                wrong.append(f"{url} at {width}: {over} pixels too wide")
    assert wrong == []


def test_a_halt_is_begun_and_ended_by_keyboard_and_on_a_phone_without_a_script(
    new_page: NewPage, live_server: LiveServer, world: World
) -> None:
    page = signed_in(new_page, live_server, world)
    for url in [*PAGES, "/halts/"]:
        page.goto(url)  # under the product's own content security policy, watched
    page.get_by_role("link", name="Halt everything").press("Enter")
    page.keyboard.type("Fire drill")
    page.get_by_role("button", name="Halt Demo").press("Enter")
    expect(page.get_by_role("status").filter(has_text="Fire drill")).to_be_visible()
    assert halts.open_ones(tenant_id=world.tenant.pk).count() == 1

    phone = signed_in(
        new_page, live_server, world, java_script_enabled=False, viewport={"width": 390, "height": 844}
    )
    phone.goto("/")
    phone.locator(".more summary").click()
    phone.get_by_role("link", name="Halts", exact=True).last.click()
    phone.get_by_role("link", name="End the halt").click()
    phone.get_by_role("button", name="End the halt").click()
    expect(phone.get_by_text("The organisation goes on")).to_be_visible()
    assert halts.open_ones(tenant_id=world.tenant.pk).count() == 0
