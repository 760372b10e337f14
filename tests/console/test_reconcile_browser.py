"""The Reconcile page in a real browser: three people at it, both themes, and no wider than a phone."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from accounts.models import Member, Role
from ledger import findings
from ledger.states import AttemptOutcome, FindingKind
from tests import worlds
from tests.browser_support import NewPage, Watch, accessibility_problems
from tests.console.settling import lost, signed_in, version_with
from tests.worlds import World
from workers import outcomes

pytestmark = pytest.mark.django_db(transaction=True)

WIDER_THAN_THE_SCREEN = "document.documentElement.scrollWidth - innerWidth"
WHY = "Looked at the provider’s own list of refunds at 14:02."


@pytest.fixture(autouse=True, scope="module")
def the_connection_beside_the_browsers_loop(
    chromium: Any, django_db_setup: None, django_db_blocker: Any
) -> Iterator[None]:
    """While an event loop runs in this thread, Django gives it another connection: it must end too."""
    with django_db_blocker.unblock():
        yield
        connection.close()


def say_it_happened(page: Page, reference: str) -> None:
    page.get_by_role("radio", name="It happened").check()
    page.get_by_label("Reference at the sink").fill(reference)
    page.get_by_label("Why", exact=True).fill(WHY)
    page.get_by_role("button", name="Record").press("Enter")


def test_an_operator_settles_an_unknown_alone_on_a_phone_without_a_script_and_is_told_why_not_otherwise(
    new_page: NewPage, live_server: LiveServer, world: World
) -> None:
    grant = lost(world, ago=timedelta(minutes=72))
    page = signed_in(
        new_page,
        live_server,
        world.member("operator"),
        java_script_enabled=False,
        viewport={"width": 390, "height": 844},
    )
    page.goto("/reconcile/")
    did_not = page.get_by_role("radio", name="It did not happen")
    expect(did_not).to_be_disabled()
    expect(page.get_by_text("The provider still keeps the key")).to_be_visible()
    say_it_happened(page, "re_1")
    expect(page.get_by_text("It happened, on your word: re_1.")).to_be_visible()
    assert worlds.operation(grant).state == "committed"


def test_two_people_settle_what_asks_for_two(
    new_page: NewPage, live_server: LiveServer, world: World
) -> None:
    version_with(world, second_person=True)
    Member.objects.filter(pk=world.member("admin").pk).update(roles=[Role.OPERATOR])
    grant = lost(world, ago=timedelta(minutes=72))
    first = signed_in(new_page, live_server, world.member("operator"))
    first.goto("/reconcile/")
    say_it_happened(first, "re_1")
    expect(first.get_by_text("Somebody else has to say the same")).to_be_visible()

    second = signed_in(new_page, live_server, world.member("admin"))
    second.goto("/reconcile/")
    expect(second.get_by_text("Olga Demo said at")).to_be_visible()
    say_it_happened(second, "re_1")
    expect(second.get_by_text("Attested by Olga Demo and Adam Demo").last).to_be_visible()
    assert worlds.operation(grant).state == "committed"


def test_the_page_is_readable_in_both_themes_and_fits_a_phone(
    new_page: NewPage, live_server: LiveServer, world: World, watch: Watch
) -> None:
    pages = a_page_full_of_work(world)
    # axe itself writes inline styles; a colour that is on its way to another is not judged
    page = signed_in(
        new_page, live_server, world.member("operator"), bypass_csp=True, reduced_motion="reduce"
    )
    wrong = []
    for url in pages:
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


def a_page_full_of_work(world: World) -> list[str]:
    """Unknown outcomes old and new, a late report, a first word and a finding; the addresses of the page's lists."""
    version_with(
        world,
        objective=timedelta(minutes=60),
        compensation={
            "action": "ledger_refund",
            "parameters": {"amount_minor": "{amount_minor}", "currency": "{currency}"},
        },
    )
    late = worlds.claimed(world, "1842", lease=worlds.LAPSED)
    (successor,) = worlds.take_over()
    outcomes.record([worlds.report(late, reference="re_3PqL0bT2eZvKYlo7cX")])
    worlds.recorded(successor, AttemptOutcome.UNCERTAIN, sent=False, lookups=2, wait=900.0, note="503")
    lost(world, "claim-88190", target="order:2", amount_minor=230_000, ago=timedelta(minutes=72))
    lost(world, "claim-88220", target="order:3", amount_minor=106_000, ago=timedelta(minutes=4))
    done = worlds.claimed(world, "claim-1", target="order:4", amount_minor=1_000)
    worlds.recorded(done)
    findings.open_finding(
        tenant_id=world.tenant.pk,
        kind=FindingKind.TWICE,
        about=done.key,
        subject=done.subject,
        order_id=done.order_id,
        reference="re_2",
        amount_minor=1_000,
        currency="EUR",
        seen=2,
    )
    return [
        "/reconcile/",
        f"/reconcile/?item={late.key}",
        "/reconcile/?view=findings",
    ]
