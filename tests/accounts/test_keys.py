"""Agents' keys: made once readable, checked, expired, revoked; never more than two that live."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts import keys
from accounts.models import Agent, AgentKey
from tests.worlds import World, new_world

SECOND = timedelta(seconds=1)
FORM = r"cs_[a-z0-9]{12}_[A-Za-z0-9_-]{43}"
PREFIX, SECRET = slice(3, 15), slice(16, None)


@pytest.fixture
def agent(world: World) -> Agent:
    """An agent without a key."""
    return Agent.objects.create(tenant=world.tenant, name="mail-agent", owner=world.member("admin"))


def test_a_new_key_names_its_agent(agent: Agent) -> None:
    token = keys.issue(agent=agent)
    assert keys.authenticate(token) == agent


def test_every_key_has_the_one_form_and_no_two_are_alike(agent: Agent) -> None:
    first, second = keys.issue(agent=agent), keys.issue(agent=agent)
    assert re.fullmatch(FORM, first)
    assert re.fullmatch(FORM, second)
    assert first[PREFIX] != second[PREFIX]


def test_the_secret_is_stored_nowhere(agent: Agent) -> None:
    token = keys.issue(agent=agent)
    row = AgentKey.objects.get(agent=agent)
    assert token[PREFIX] == row.prefix
    assert token[SECRET] not in str(row.__dict__)
    assert len(row.secret_sha256) == 64


@pytest.mark.parametrize(
    "malform",
    [
        lambda token: token[:0],
        lambda token: token[:-1],
        lambda token: token + "A",
        lambda token: token + "\n",
        lambda token: " " + token,
        lambda token: token.upper(),
        lambda token: token.replace("cs_", "sk_", 1),
        lambda token: token[:-1] + "é",
        lambda token: token[:-1] + "\x00",
        lambda token: token[:-1] + "\ud83d",
        lambda token: "cs_" + "１" * 12 + token[15:],  # digits, but not ASCII ones
        lambda token: token * 1000,
        lambda token: token[SECRET],
    ],
)
def test_what_has_not_the_form_of_a_key_is_no_key_and_costs_no_query(
    agent: Agent, malform: Callable[[str], str], django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    token = keys.issue(agent=agent)
    with django_assert_num_queries(0):
        assert keys.authenticate(malform(token)) is None


def test_a_right_prefix_with_another_secret_is_no_key(agent: Agent) -> None:
    first, second = keys.issue(agent=agent), keys.issue(agent=agent)
    assert keys.authenticate(first[:16] + second[SECRET]) is None


def test_an_unknown_prefix_is_no_key(agent: Agent) -> None:
    token = keys.issue(agent=agent)
    assert keys.authenticate("cs_000000000000_" + token[SECRET]) is None


def test_a_key_ends_at_its_expiry(agent: Agent) -> None:
    token = keys.issue(agent=agent, expires_at=timezone.now() + SECOND)
    assert keys.authenticate(token) == agent
    AgentKey.objects.filter(agent=agent).update(expires_at=timezone.now())
    assert keys.authenticate(token) is None


def test_a_revoked_key_ends_at_once_and_the_other_one_goes_on(agent: Agent) -> None:
    first, second = keys.issue(agent=agent), keys.issue(agent=agent)

    assert keys.revoke(agent=agent, prefix=first[PREFIX]) is True

    assert keys.authenticate(first) is None
    assert keys.authenticate(second) == agent


def test_revoking_twice_ends_nothing_twice(agent: Agent) -> None:
    token = keys.issue(agent=agent)
    assert keys.revoke(agent=agent, prefix=token[PREFIX]) is True
    ended = AgentKey.objects.get(agent=agent).revoked_at
    assert keys.revoke(agent=agent, prefix=token[PREFIX]) is False
    assert AgentKey.objects.get(agent=agent).revoked_at == ended


def test_an_agent_cannot_revoke_the_key_of_another(agent: Agent, world: World) -> None:
    token = keys.issue(agent=agent)
    other = new_world().organisation.agent
    assert keys.revoke(agent=other, prefix=token[PREFIX]) is False
    assert keys.authenticate(token) == agent


def test_the_keys_of_an_agent_that_is_switched_off_open_nothing(agent: Agent) -> None:
    token = keys.issue(agent=agent)
    Agent.objects.filter(pk=agent.pk).update(is_active=False)
    assert keys.authenticate(token) is None


def test_a_third_live_key_is_refused_and_none_is_made(agent: Agent) -> None:
    tokens = [keys.issue(agent=agent), keys.issue(agent=agent)]
    with pytest.raises(keys.TooManyKeys, match="Revoke one"):
        keys.issue(agent=agent)
    assert AgentKey.objects.filter(agent=agent).count() == 2
    assert all(keys.authenticate(token) == agent for token in tokens)


def test_a_revoked_or_expired_key_makes_room_for_the_next(agent: Agent) -> None:
    first = keys.issue(agent=agent)
    keys.issue(agent=agent, expires_at=timezone.now() - SECOND)
    third = keys.issue(agent=agent)
    keys.revoke(agent=agent, prefix=first[PREFIX])
    fourth = keys.issue(agent=agent)
    assert [keys.authenticate(token) for token in (first, third, fourth)] == [None, agent, agent]


def test_the_keys_of_two_agents_are_counted_apart(agent: Agent, world: World) -> None:
    keys.issue(agent=agent)
    keys.issue(agent=agent)
    assert keys.authenticate(keys.issue(agent=world.organisation.agent)) == world.organisation.agent


def test_the_last_use_is_kept_but_not_written_with_every_call(
    agent: Agent, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    token = keys.issue(agent=agent)
    keys.authenticate(token)
    first = AgentKey.objects.get(agent=agent).last_used_at
    keys.authenticate(token)
    assert AgentKey.objects.get(agent=agent).last_used_at == first

    AgentKey.objects.filter(agent=agent).update(last_used_at=timezone.now() - timedelta(hours=1))
    keys.authenticate(token)
    used = AgentKey.objects.get(agent=agent).last_used_at
    assert used is not None
    assert first is not None
    assert used >= first
