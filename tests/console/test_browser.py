"""The console in a real browser: with mouse and keyboard, with two tabs, on a phone, without a script."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session
from django.db import connection
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from accounts.models import Member, Tenant
from approvals.models import Case, Vote
from approvals.states import CaseState
from ledger.models import Operation
from ledger.states import AttemptOutcome
from tests import worlds
from tests.browser_support import NewPage, Watch, accessibility_problems
from tests.worlds import World, current
from workers import outcomes

pytestmark = pytest.mark.django_db(transaction=True)

PHONES = [390, 320]
"""Widths in pixels: one of today, and the narrowest that WCAG 1.4.10 asks for."""
WIDER_THAN_THE_SCREEN = "document.documentElement.scrollWidth - innerWidth"
DRAFTS = "Object.keys(sessionStorage).filter((key) => key.startsWith('draft'))"
LOOK_FOR_NEWS = "htmx.trigger(document.body, 'live')"
"""What the page does by itself every five seconds."""


class Browser:
    """Opens pages as the world's people, each in a session of their own."""

    def __init__(self, new_page: NewPage, server: LiveServer, world: World) -> None:
        self._new_page, self._server, self._world = new_page, server, world

    def open(self, url: str, handle: str = "reviewer", **options: Any) -> Page:
        """A page of the signed-in person; takes the options of Playwright's `new_context`."""
        page = self._new_page(base_url=self._server.url, **options)
        cookie: Any = {
            "name": settings.SESSION_COOKIE_NAME,
            "value": self._session(handle),
            "url": self._server.url,
        }
        page.context.add_cookies([cookie])
        page.goto(url)
        return page

    def _session(self, handle: str) -> str:
        member = self._world.member(handle)
        session = import_module(settings.SESSION_ENGINE).SessionStore()
        session[SESSION_KEY] = str(member.user_id)
        session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
        session[HASH_SESSION_KEY] = member.user.get_session_auth_hash()
        session["member_id"] = member.pk
        session.save()
        key: str = session.session_key
        return key


@pytest.fixture(autouse=True, scope="module")
def the_connection_beside_the_browsers_loop(
    chromium: Any, django_db_setup: None, django_db_blocker: Any
) -> Iterator[None]:
    """While an event loop runs in this thread, Django gives it another connection: it must end too."""
    with django_db_blocker.unblock():
        yield
        connection.close()


@pytest.fixture
def browser(new_page: NewPage, live_server: LiveServer, world: World) -> Browser:
    return Browser(new_page, live_server, world)


def operations(case: Case) -> int:
    return Operation.objects.filter(order__subject=case.pk).count()


# Deciding.


def test_signing_in_and_approving_with_the_mouse(page: Page, world: World) -> None:
    with worlds.quick_passwords():
        case, person = worlds.proposed(world), world.organisation.people["reviewer"]
        page.goto("/")
        page.get_by_label("E-mail").fill(person.email)
        page.get_by_label("Password").fill(person.password)
        page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Refund 1,250.00 EUR on ch_1842").click()
    bar = page.get_by_role("region", name="Decision")
    expect(bar).to_contain_text("You approve revision 1: refund 1,250.00 EUR on ch_1842.")

    bar.get_by_role("link", name="Approve").click()
    panel = page.get_by_role("dialog", name="Approve revision 1")
    expect(panel).to_contain_text("Yours is the last approval this needs")
    assert current(case).revision == 1
    panel.get_by_role("button", name="Approve revision 1").click()

    expect(page.get_by_role("status").filter(has_text="is recorded")).to_contain_text("made revision 2")
    expect(bar).to_contain_text("No worker has taken it yet.")
    assert (current(case).state, operations(case)) == (CaseState.APPROVED, 1)


def test_approving_with_the_keyboard_and_a_key_alone_never_decides(browser: Browser, world: World) -> None:
    case = worlds.proposed(world)
    page = browser.open("/")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/cases/**")
    page.keyboard.press("a")
    expect(page.get_by_role("dialog", name="Approve revision 1")).to_be_visible()
    page.keyboard.press("a")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert current(case).revision == 1

    page.keyboard.press("a")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Approve revision 1")).to_be_focused()
    page.keyboard.press("Enter")

    expect(page.get_by_text("It was the last one needed")).to_be_visible()
    assert current(case).state == CaseState.APPROVED


def test_two_reviewers_approve_with_reason_and_typed_amount(
    new_page: NewPage, live_server: LiveServer, watch: Watch
) -> None:
    watch.allow("status of 422")
    world = worlds.new_world(tier=3, approvals_required=2)
    browser, case = Browser(new_page, live_server, world), worlds.proposed(world)
    for handle, expected in (("reviewer", "1 of 2"), ("second_reviewer", "the last one needed")):
        page = browser.open(f"/cases/{case.pk}/", handle)
        page.keyboard.press("a")
        panel = page.get_by_role("dialog", name="Approve revision 1")
        panel.get_by_label("Type the amount").fill("125.00")
        panel.get_by_label("Reason").fill("Checked with the carrier.")
        page.get_by_role("button", name="Approve revision 1").click()
        expect(page.get_by_text("125.00 is not 1,250.00 EUR. Nothing was recorded.")).to_be_visible()
        expect(panel.get_by_label("Reason")).to_have_value("Checked with the carrier.")

        panel.get_by_label("Type the amount").fill("1,250.00 EUR")
        page.get_by_role("button", name="Approve revision 1").click()
        expect(page.get_by_role("status").filter(has_text="is recorded")).to_contain_text(expected)
    assert (current(case).state, operations(case)) == (CaseState.APPROVED, 1)


def test_rejecting_needs_a_reason_and_tells_the_agent(browser: Browser, world: World) -> None:
    case = worlds.proposed(world)
    page = browser.open(f"/cases/{case.pk}/")
    page.keyboard.press("r")
    panel = page.get_by_role("dialog", name="Reject revision 1")
    panel.get_by_role("button", name="Reject revision 1").click()
    assert current(case).revision == 1  # the browser itself asks for what is missing

    panel.get_by_label("Because").select_option("Wrong amount")
    panel.get_by_label("Reason").fill("It was 125.00.")
    panel.get_by_role("button", name="Reject revision 1").click()

    expect(page.get_by_text("refund-agent is told your reason.")).to_be_visible()
    last = current(case).revisions.get(number=2)
    assert (last.state, last.reason_code, last.reason) == ("rejected", "wrong_amount", "It was 125.00.")


def test_an_approval_is_revoked_before_a_worker_takes_it(browser: Browser, world: World) -> None:
    case = worlds.approved(world)
    page = browser.open(f"/cases/{case.pk}/")
    page.get_by_role("link", name="Revoke approval").click()
    page.get_by_role("button", name="Revoke the approval").click()

    expect(page.get_by_text("The approval is revoked: revision 3 waits for review.")).to_be_visible()
    assert (current(case).state, worlds.operation(case).state) == (CaseState.PENDING, "failed_before_commit")


def test_a_double_click_is_one_vote_and_one_operation(browser: Browser, world: World) -> None:
    case = worlds.proposed(world)
    page = browser.open(f"/cases/{case.pk}/")
    page.keyboard.press("a")
    page.get_by_role("button", name="Approve revision 1").dblclick()

    expect(page.locator(".recorded")).not_to_have_count(0)
    expect(page.get_by_text("was not recorded")).to_have_count(0)
    assert (Vote.objects.filter(case=case).count(), operations(case)) == (1, 1)


def test_back_after_an_approval_shows_no_bar_of_yesterday(browser: Browser, world: World) -> None:
    case = worlds.proposed(world)
    page = browser.open("/")
    page.goto(f"/cases/{case.pk}/")
    page.keyboard.press("a")
    page.get_by_role("button", name="Approve revision 1").click()
    page.wait_for_url("**view=mine")
    page.go_back()
    expect(page.get_by_role("region", name="Decision")).to_contain_text("Approved by Rita Demo")
    expect(page.get_by_role("link", name="Approve…")).to_have_count(0)


# While somebody else is faster.


def test_a_stale_tab_gets_the_conflict_page_and_keeps_the_draft(
    browser: Browser, world: World, watch: Watch
) -> None:
    watch.allow("status of 412")
    case = worlds.proposed(world)
    page = browser.open(f"/cases/{case.pk}/")
    page.keyboard.press("r")
    because = page.get_by_role("dialog").get_by_label("Because")
    because.select_option("Wrong amount")
    page.get_by_role("dialog").get_by_label("Reason").fill("It was 125.00, see the order.")
    worlds.revised(world, case, amount_minor=12_500)
    page.get_by_role("button", name="Reject revision 1").click()

    expect(page.get_by_role("heading", name="Your rejection was not recorded")).to_be_visible()
    expect(page.get_by_text("Nothing was sent.")).to_be_visible()
    expect(page.get_by_role("row", name="Amount ÷10")).to_contain_text("125.00 EUR")
    assert (current(case).revision, Vote.objects.count()) == (2, 0)

    page.get_by_role("link", name="Review revision 2").click()
    page.wait_for_url("**view=mine")
    page.keyboard.press("r")
    draft = page.get_by_role("dialog").get_by_label("Reason")
    expect(draft).to_have_value("It was 125.00, see the order.")
    because.select_option("Wrong amount")
    page.get_by_role("button", name="Reject revision 2").click()
    expect(page.get_by_text("Your rejection of revision 2 is recorded.")).to_be_visible()
    assert page.evaluate(DRAFTS) == []


def test_a_newer_revision_turns_the_bar_off_while_one_reads(browser: Browser, world: World) -> None:
    case = worlds.proposed(world)
    page = browser.open(f"/cases/{case.pk}/")
    page.evaluate(LOOK_FOR_NEWS)
    worlds.revised(world, case, amount_minor=12_500)
    page.evaluate(LOOK_FOR_NEWS)

    banner = page.get_by_role("alert").filter(has_text="arrived")
    expect(banner).to_contain_text("refund-agent sent a new revision. You still see revision 1")
    bar = page.get_by_role("region", name="Decision")
    expect(bar).to_contain_text("Deciding is off")
    page.keyboard.press("a")
    expect(page.get_by_role("dialog")).to_have_count(0)
    bar.get_by_role("link", name="Load revision 2").click()
    expect(bar).to_contain_text("You approve revision 2: refund 125.00 EUR")


def test_a_panel_begins_at_the_first_field_it_asks_for(browser: Browser, world: World) -> None:
    page = browser.open(f"/cases/{worlds.proposed(world).pk}/")
    page.keyboard.press("r")
    expect(page.get_by_role("dialog").get_by_label("Because")).to_be_focused()


LONG_NAME = "Worked example 5f30712b (demo) of a rather long name"
STICKS_OUT = """(panel) => [...panel.querySelectorAll(':not([type=hidden])')].filter((each) => {
    const [inner, outer] = [each.getBoundingClientRect(), panel.getBoundingClientRect()];
    return inner.right > outer.right || inner.left < outer.left || each.scrollWidth > each.clientWidth + 1;
}).map((each) => each.outerHTML)"""


@pytest.mark.parametrize("width", [1280, *PHONES])
def test_a_long_name_of_an_organisation_stays_inside_the_menu(
    browser: Browser, world: World, width: int
) -> None:
    other = worlds.new_world()
    Tenant.objects.filter(pk__in=[world.tenant.pk, other.tenant.pk]).update(name=LONG_NAME)
    Member.objects.filter(pk=other.member("reviewer").pk).update(user=world.member("reviewer").user)
    page = browser.open("/", viewport={"width": width, "height": 800})
    page.locator(".me").click()
    menu = page.locator(".top .menu > div")
    expect(menu.get_by_role("button", name=LONG_NAME)).to_be_visible()
    assert menu.evaluate(STICKS_OUT) == []
    box = menu.bounding_box()
    assert box
    assert box["x"] >= 0
    assert page.evaluate(WIDER_THAN_THE_SCREEN) <= 0


@pytest.mark.parametrize("width", [1280, *PHONES])
def test_the_page_of_errors_is_a_sheet_with_a_way_back(browser: Browser, width: int) -> None:
    page = browser.open("/docs/errors", viewport={"width": width, "height": 800})
    sheet = page.get_by_role("main").bounding_box()
    assert sheet
    assert sheet["width"] <= 44 * 16
    assert abs(sheet["x"] * 2 + sheet["width"] - width) < 20
    assert page.evaluate(WIDER_THAN_THE_SCREEN) <= 0
    page.get_by_role("link", name="Open the console").click()
    expect(page.get_by_role("heading", name="Review queue")).to_be_visible()


def test_an_open_panel_is_not_disturbed_by_news(browser: Browser, world: World) -> None:
    case = worlds.proposed(world)
    page = browser.open(f"/cases/{case.pk}/")
    page.keyboard.press("r")
    field = page.get_by_role("dialog").get_by_label("Reason")
    field.fill("half a sen")
    page.evaluate(LOOK_FOR_NEWS)
    expect(field).to_be_focused()
    expect(field).to_have_value("half a sen")


def test_new_rows_wait_until_they_are_asked_for(browser: Browser, world: World) -> None:
    worlds.proposed(world, "first", target="order:1")
    page = browser.open("/")
    worlds.proposed(world, "second", target="order:2")
    page.evaluate(LOOK_FOR_NEWS)
    expect(page.get_by_text("1 new case arrived.")).to_be_visible()
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name="Show it").click()
    expect(page.get_by_role("row")).to_have_count(3)


def test_the_outcome_arrives_on_the_page_of_an_approved_case(browser: Browser, world: World) -> None:
    case = worlds.approved(world)
    page = browser.open(f"/cases/{case.pk}/")
    worlds.recorded(worlds.claim()[0])
    page.evaluate(LOOK_FOR_NEWS)
    expect(page.locator("#operation")).to_contain_text("It happened, once.")
    expect(page.get_by_role("alert").filter(has_text="Revision 4 arrived")).to_be_visible()


def test_a_lost_session_shows_a_banner_and_never_a_sign_in_page_inside(
    browser: Browser, world: World, watch: Watch
) -> None:
    watch.allow("status of 401")
    watch.allow("Response Status Error Code 401")
    case = worlds.proposed(world)
    page = browser.open(f"/cases/{case.pk}/")
    page.keyboard.press("r")
    page.get_by_role("dialog").get_by_label("Reason").fill("Kept on this page.")
    page.keyboard.press("Escape")
    Session.objects.all().delete()
    page.evaluate(LOOK_FOR_NEWS)
    expect(page.get_by_text("You are signed out.")).to_be_visible()
    expect(page.get_by_label("Password")).to_have_count(0)

    page.keyboard.press("r")
    page.get_by_role("dialog").get_by_label("Because").select_option("Wrong amount")
    page.get_by_role("button", name="Reject revision 1").click()
    expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()
    expect(page.get_by_text("Nothing was recorded.")).to_be_visible()
    expect(page.get_by_text("Kept on this page.")).to_be_visible()
    assert current(case).revision == 1
    assert page.evaluate(DRAFTS) == [f"draft {case.pk}-reject"]


# Without a script.


def test_everything_can_be_decided_without_a_script(browser: Browser, world: World, watch: Watch) -> None:
    watch.allow("status of 412")
    case, other = worlds.proposed(world), worlds.proposed(world, "1843", target="order:2")
    page = browser.open("/", java_script_enabled=False, viewport={"width": 390, "height": 844})
    page.get_by_role("link", name="Refund 1,250.00 EUR").first.click()
    page.get_by_role("link", name="Approve").click()
    page.get_by_role("button", name="Approve revision 1").click()
    expect(page.locator(".recorded")).to_contain_text("is recorded")
    assert current(case).state == CaseState.APPROVED

    page.goto(f"/cases/{other.pk}/?panel=reject")
    page.get_by_role("dialog").get_by_label("Because").select_option("Wrong amount")
    page.get_by_role("textbox", name="Reason").fill("No.")
    worlds.revised(world, other, amount_minor=1)
    page.get_by_role("button", name="Reject revision 1").click()
    expect(page.get_by_role("heading", name="Your rejection was not recorded")).to_be_visible()
    expect(page.get_by_text("Your draft is kept: “No.”")).to_be_visible()
    page.get_by_role("link", name="Review revision 2").click()
    page.get_by_role("link", name="Reject").click()
    page.get_by_role("dialog").get_by_label("Because").select_option("Wrong amount")
    page.get_by_role("textbox", name="Reason").fill("No.")
    page.get_by_role("button", name="Reject revision 2").click()
    expect(page.locator(".recorded")).to_contain_text("Your rejection of revision 2 is recorded.")


def test_filters_preferences_and_signing_out_work_without_a_script(browser: Browser, world: World) -> None:
    worlds.proposed(world)
    page = browser.open("/", java_script_enabled=False)
    page.get_by_label("Tool").select_option("ledger_refund")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("heading", name="Nothing waits here")).to_be_visible()
    page.get_by_role("link", name="Clear the filters").click()
    expect(page.get_by_role("row")).to_have_count(2)
    page.locator("summary.me").click()
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.locator("summary.me").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


# How it looks and reads.


def lived_in(world: World) -> list[str]:
    """A case and an operation of each interesting kind; returns the pages that show them."""
    case = worlds.proposed(world, amount_minor=12_500, rationale="help.example/\u202egro.elpmaxe")
    worlds.revised(
        world,
        case,
        evidence=[{"statement": "Paid", "source": "payments", "fetched_at": "2026-11-30T10:00:00Z"}],
        rationale="x" * 300,
    )
    first = worlds.claimed(world, "1843", target="order:2", lease=worlds.LAPSED)
    second = worlds.take_over()[0]
    worlds.recorded(second, worker="worker-b", sent=False, lookups=1)
    outcomes.record([worlds.report(first)])
    worlds.recorded(worlds.claimed(world, "1844", target="order:3"), AttemptOutcome.UNCERTAIN, wait=900.0)
    worlds.claimed(world, "1845", target="order:4", lease=worlds.LAPSED)
    operation = worlds.operation(first)
    return [
        "/",
        "/?view=decided",
        "/?view=expiring",
        "/cases/",
        f"/cases/{case.pk}/",
        f"/cases/{case.pk}/?panel=reject",
        f"/cases/{first.subject}/",
        "/operations/",
        f"/operations/{operation.order_id}/",
        "/search/?q=184",
        "/cases/0/",
        "/docs/errors",
    ]


def test_on_a_phone_no_page_is_wider_than_the_screen(browser: Browser, world: World, watch: Watch) -> None:
    watch.allow("status of 404")
    pages = [*lived_in(world), "/sign-in/"]
    page = browser.open("/", viewport={"width": PHONES[0], "height": 844})
    assert [over for url in pages for over in _too_wide(page, url)] == []


def _too_wide(page: Page, url: str) -> Iterator[str]:
    page.goto(url)
    for width in PHONES:
        page.set_viewport_size({"width": width, "height": 844})
        if over := page.evaluate(WIDER_THAN_THE_SCREEN):
            yield f"{url} at {width}: {over}"


def test_every_page_can_be_read_by_everybody(browser: Browser, world: World, watch: Watch) -> None:
    watch.allow("status of 404")
    watch.allow("status of 412")
    pages = lived_in(world)
    page = browser.open("/", bypass_csp=True)  # axe itself writes inline styles
    for url in pages:
        page.goto(url)
        assert accessibility_problems(page) == [], url
    page.goto(pages[4])
    page.keyboard.press("a")
    assert accessibility_problems(page) == [], "an open panel"
    worlds.revised(world, Case.objects.get(reference="1842"), amount_minor=12_500, payment="ch_4242")
    page.get_by_role("button", name="Approve revision 2").click()
    expect(page.get_by_role("heading", name="Your approval was not recorded")).to_be_visible()
    assert accessibility_problems(page) == [], "a conflict"
    page.context.clear_cookies()
    page.goto("/sign-in/")
    assert accessibility_problems(page) == [], "/sign-in/"


def test_the_dark_theme_has_contrast_where_colours_mean_something(browser: Browser, world: World) -> None:
    pages = lived_in(world)
    page = browser.open("/", color_scheme="dark", bypass_csp=True)
    for url in (pages[0], pages[4], "/operations/", pages[8]):
        page.goto(url)
        assert accessibility_problems(page, only=["color-contrast"]) == [], url


def test_the_theme_is_kept_and_shortcuts_can_be_switched_off(browser: Browser, world: World) -> None:
    case = worlds.proposed(world)
    page = browser.open(f"/cases/{case.pk}/")
    page.locator("summary.me").click()
    page.get_by_role("button", name="Dark").click()
    page.get_by_role("group", name="Single-key shortcuts").get_by_role("button", name="Off").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.keyboard.press("a")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_live_updates_can_be_paused(browser: Browser, world: World) -> None:
    page = browser.open("/")
    page.get_by_role("button", name="Pause live updates").click()
    expect(page.get_by_text("Paused")).to_be_visible()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-live-updates", "off")
