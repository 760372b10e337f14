"""Who is calling: a live key, or a live session with its CSRF token; nothing else, from one call to the next."""

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts import keys
from accounts.models import Agent, AgentKey, Member, Role, User
from approvals.models import Case
from tests.api.conftest import CSRF, Answer, Caller, by_key, signed_in, with_key
from tests.worlds import World


def test_without_a_key_or_a_session_nothing_is_shown(case: Answer) -> None:
    nobody = with_key("x")
    nobody.headers.clear()

    refused = nobody.read(case)

    assert (refused.status, refused.problem) == (401, "unauthenticated")
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="countersign"'


NO_LIVE_KEY = [
    "",
    "Bearer",
    "Bearer ",
    "Bearer x",
    "Bearer cs_000000000000_" + "A" * 43,
    "Basic {key}",
    "Token {key}",
    "{key}",
    "Bearer {key}x",
    "Bearer {key} {key}",
    "Bearer, {key}",
    "Bearer {key_in_capitals}",
    "Bearer cs_é",
]


def test_a_header_that_is_no_live_key_is_refused(world: World, agent: Caller) -> None:
    key = world.organisation.agent_key
    for header in NO_LIVE_KEY:
        refused = agent.get("/cases", Authorization=header.format(key=key, key_in_capitals=key.upper()))
        assert (header, refused.status, refused.problem) == (header, 401, "unauthenticated")
        assert refused.headers["WWW-Authenticate"] == 'Bearer realm="countersign", error="invalid_token"'


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_may_be_written_in_any_case(world: World, scheme: str) -> None:
    caller = by_key(world)
    caller.headers["Authorization"] = f"{scheme} {world.organisation.agent_key}"

    assert caller.get("/cases").status == 200


def test_a_dead_key_is_not_saved_by_a_live_session(world: World, reviewer: Caller) -> None:
    assert reviewer.get("/cases", Authorization="Bearer x").status == 401


def test_a_revoked_key_is_dead_at_once_and_learns_nothing_by_a_replay(world: World, agent: Caller) -> None:
    assert agent.propose().status == 201

    prefix = AgentKey.objects.get(agent=world.organisation.agent).prefix
    assert keys.revoke(agent=world.organisation.agent, prefix=prefix)

    again = agent.propose()
    assert (again.status, again.problem) == (401, "unauthenticated")
    assert "1842" not in again.response.content.decode()


@pytest.mark.parametrize("end", ["expired", "agent switched off"])
def test_a_key_ends_with_its_time_or_its_agent(world: World, agent: Caller, end: str) -> None:
    if end == "expired":
        AgentKey.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    else:
        Agent.objects.update(is_active=False)

    assert agent.propose().status == 401
    assert Case.objects.count() == 0


def test_two_live_keys_speak_for_the_same_agent(world: World, case: Answer) -> None:
    other = with_key(keys.issue(agent=world.organisation.agent))

    assert other.propose().headers["Idempotent-Replayed"] == "true"
    assert other.get("/agents/me").json == by_key(world).get("/agents/me").json


# People.


def test_a_signed_in_member_reads_without_a_token_and_writes_with_it(reviewer: Caller, case: Answer) -> None:
    reviewer.headers.clear()
    assert reviewer.read(case).status == 200

    refused = reviewer.decide(case)
    assert (refused.status, refused.problem) == (403, "csrf-failed")

    reviewer.headers["X-CSRFToken"] = CSRF
    assert reviewer.decide(case).status == 200


@pytest.mark.parametrize("token", ["", "x", "d" * 32])
def test_a_token_of_another_session_is_refused(reviewer: Caller, case: Answer, token: str) -> None:
    reviewer.headers["X-CSRFToken"] = token

    assert reviewer.decide(case).problem == "csrf-failed"
    assert reviewer.read(case).etag == case.etag


def test_a_page_of_another_site_cannot_write(reviewer: Caller, case: Answer) -> None:
    reviewer.headers["Origin"] = "https://elsewhere.example"

    assert reviewer.decide(case).problem == "csrf-failed"


@pytest.mark.parametrize(
    "end", ["member off", "user off", "signed out", "no membership", "another's membership"]
)
def test_a_session_ends_with_its_membership(
    world: World, elsewhere: World, reviewer: Caller, case: Answer, end: str
) -> None:
    member = world.organisation.people["reviewer"].member
    session = reviewer.client.session
    if end == "member off":
        Member.objects.filter(pk=member.pk).update(is_active=False)
    elif end == "user off":
        User.objects.filter(pk=member.user_id).update(is_active=False)
    elif end == "signed out":
        reviewer.client.logout()
    elif end == "no membership":
        del session["member_id"]
    else:
        session["member_id"] = elsewhere.organisation.people["reviewer"].member.pk
    if end in ("no membership", "another's membership"):
        session.save()

    assert reviewer.read(case).status == 401
    assert reviewer.decide(case).status == 401


def test_a_role_that_was_taken_away_is_gone_at_the_next_call(
    world: World, reviewer: Caller, case: Answer
) -> None:
    member = world.organisation.people["reviewer"].member
    Member.objects.filter(pk=member.pk).update(roles=[Role.AUDITOR])

    refused = reviewer.decide(case)

    assert (refused.status, refused.problem) == (403, "not-permitted")
    assert reviewer.read(case).status == 200


@pytest.mark.parametrize("handle", ["operator", "admin", "auditor", "second_reviewer"])
def test_every_member_may_read(world: World, case: Answer, handle: str) -> None:
    assert signed_in(world, handle).read(case).json == case.json
