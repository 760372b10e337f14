"""Who gets in: signing in and out, organisations, and what a page without a session answers."""

import re
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from accounts.models import Member, Role, User
from tests import worlds
from tests.console.doors import Person, at_the_console, new_client, raw_form, words
from tests.worlds import World

pytestmark = pytest.mark.django_db

PAGES = ["/", "/cases/", "/operations/", "/search/?q=1842", "/cases/1/"]


@pytest.fixture(autouse=True)
def quick_passwords() -> Any:
    with worlds.quick_passwords():
        yield


def sign_in(client: Client, email: str, password: str, **more: str) -> Any:
    return client.post("/sign-in/", {"username": email, "password": password, **more})


def test_a_form_with_username_password_and_token_leads_into_the_queue(world: World) -> None:
    client, person = Client(enforce_csrf_checks=True), world.organisation.people["reviewer"]
    page = client.get("/sign-in/").content.decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token
    assert 'name="username"' in page
    assert 'name="password"' in page

    answer = sign_in(client, person.email, person.password, csrfmiddlewaretoken=token[1])

    assert (answer.status_code, answer.headers["Location"]) == (302, "/")
    assert client.session["member_id"] == person.member.pk
    assert client.get("/").status_code == 200


def test_the_address_is_compared_without_regard_to_case_and_one_returns_to_where_one_was(
    world: World,
) -> None:
    client, person = new_client(), world.organisation.people["reviewer"]

    answer = sign_in(client, person.email.upper(), person.password, next="/cases/?view=open")

    assert (answer.status_code, answer.headers["Location"]) == (302, "/cases/?view=open")


@pytest.mark.parametrize(
    "next_", ["https://elsewhere.example/", "//elsewhere.example/", "javascript:alert(1)"]
)
def test_signing_in_never_leads_to_another_site(next_: str, world: World) -> None:
    person = world.organisation.people["reviewer"]
    assert sign_in(new_client(), person.email, person.password, next=next_).headers["Location"] == "/"


def test_a_wrong_password_and_an_unknown_address_get_the_same_words(world: World) -> None:
    person = world.organisation.people["reviewer"]
    for email in (person.email, "nobody@demo.example"):
        answer = sign_in(new_client(), email, "wrong")
        assert answer.status_code == 200
        assert "E-mail and password do not match an account." in words(answer)


def test_who_belongs_to_no_organisation_is_told_so(world: World) -> None:
    person = world.organisation.people["reviewer"]
    Member.objects.filter(pk=person.member.pk).update(is_active=False)

    client = new_client()
    answer = sign_in(client, person.email, person.password)

    assert "Your account belongs to no organisation." in words(answer)
    assert client.get("/").status_code == 302


def test_a_membership_that_ends_while_one_is_signed_in_ends_every_page(world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)
    Member.objects.filter(pk=reviewer.member.pk).update(is_active=False)

    page, act = reviewer.open("/"), reviewer.send(case, raw_form(case, "approve"))

    assert (page.status_code, act.status_code) == (403, 403)
    assert "You belong to no organisation" in words(page)
    assert "Sign out" in words(page)


def test_a_person_of_two_organisations_starts_in_the_first_and_can_change(world: World) -> None:
    other = worlds.new_world()
    person = world.organisation.people["reviewer"]
    guest = Member.objects.create(tenant=other.tenant, user=person.member.user, roles=[Role.AUDITOR])
    client = new_client()
    sign_in(client, person.email, person.password)
    assert client.session["member_id"] == person.member.pk
    assert other.tenant.name in words(client.get("/"))

    client.post("/organisation/", {"member": str(guest.pk)})

    assert client.session["member_id"] == guest.pk
    assert client.get(f"/cases/{worlds.proposed(world).pk}/").status_code == 404
    assert client.get(f"/cases/{worlds.proposed(other).pk}/").status_code == 200


def test_nobody_changes_into_an_organisation_of_others(world: World) -> None:
    reviewer, stranger = at_the_console(world), worlds.new_world().member("admin")

    reviewer.client.post("/organisation/", {"member": str(stranger.pk)})

    assert reviewer.client.session["member_id"] == reviewer.member.pk


def test_signing_out_takes_a_form_and_ends_the_session(world: World) -> None:
    reviewer = at_the_console(world)
    assert reviewer.open("/sign-out/").status_code == 405
    assert reviewer.open("/").status_code == 200

    assert reviewer.client.post("/sign-out/").headers["Location"] == "/sign-in/"
    assert reviewer.open("/").status_code == 302


@pytest.mark.parametrize("url", PAGES)
def test_a_page_without_a_session_leads_to_the_sign_in_page_and_back(url: str, db: None) -> None:
    answer = new_client().get(url)
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith("/sign-in/?next=/")


@pytest.mark.parametrize(
    "url", [*PAGES, "/?region=news&after=0&shown=0", "/cases/1/?region=newer&revision=1"]
)
def test_a_live_region_without_a_session_gets_401_and_no_page(url: str, db: None) -> None:
    answer = new_client().get(url, headers={"HX-Request": "true"})
    assert (answer.status_code, answer.content) == (401, b"")


def test_an_act_without_a_session_says_that_nothing_was_recorded_and_shows_the_draft(world: World) -> None:
    case = worlds.proposed(world)

    answer = new_client().post(
        f"/cases/{case.pk}/decisions/", raw_form(case, "reject", reason="My <b>words</b>")
    )

    assert answer.status_code == 401
    assert "You are signed out Nothing was recorded." in words(answer)
    assert "My <b>words</b>" in words(answer)
    assert f'href="/sign-in/?next=/cases/{case.pk}/"' in answer.content.decode()
    assert worlds.current(case).revision == 1


@pytest.mark.parametrize("url", ["/", "/cases/", "/operations/", "/search/?q=x", "/sign-in/"])
def test_no_page_is_kept_by_a_browser(url: str, world: World) -> None:
    assert "no-store" in at_the_console(world).open(url).headers["Cache-Control"]


@pytest.mark.parametrize("url", ["/", "/cases/", "/operations/", "/search/"])
def test_a_page_takes_no_form(url: str, world: World) -> None:
    answer = at_the_console(world).client.post(url)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_preferences_are_cookies_of_known_values(world: World) -> None:
    reviewer = at_the_console(world)

    answer = reviewer.client.post("/preferences/", {"theme": "dark", "live": "off", "next": "/cases/"})

    assert (answer.status_code, answer.headers["Location"]) == (302, "/cases/")
    page = reviewer.read("/")
    assert 'data-theme="dark"' in page
    assert 'data-live-updates="off"' in page
    reviewer.client.post("/preferences/", {"theme": '"><script>'})
    reviewer.client.cookies["shortcuts"] = "<script>"
    assert 'data-theme="dark"' in reviewer.read("/")
    assert "data-shortcuts" not in reviewer.read("/")
    assert reviewer.client.get("/preferences/").status_code == 405


def test_preferences_never_lead_to_another_site(world: World) -> None:
    answer = at_the_console(world).client.post("/preferences/", {"next": "https://elsewhere.example/"})
    assert answer.headers["Location"] == "/"


def test_the_frame_names_organisation_person_and_role(world: World) -> None:
    page = words(at_the_console(world, "auditor").read("/"))
    assert f"{world.tenant.name}DEMO" in page
    assert f"auditor of {world.tenant.name}" in page
    assert world.organisation.people["auditor"].email in page


def test_cookies_of_the_session_are_not_for_scripts() -> None:
    assert settings.SESSION_COOKIE_HTTPONLY


def test_an_inactive_person_is_signed_out_at_the_next_page(world: World) -> None:
    reviewer = at_the_console(world)
    User.objects.filter(pk=reviewer.member.user_id).update(is_active=False)
    assert reviewer.open("/").status_code == 302


def test_a_session_names_its_member_as_the_interface_for_programs_reads_it(world: World) -> None:
    reviewer: Person = at_the_console(world)
    assert reviewer.client.get("/api/v1/cases").status_code == 200


def test_a_form_that_is_no_form_is_a_bad_request(client: Client) -> None:
    refused = client.generic("POST", "/sign-in/", b"x", content_type="multipart/form-data; boundary=")
    assert refused.status_code == 400
