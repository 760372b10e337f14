"""An actor carries the roles its member holds now, and none when it holds none."""

import pytest

from accounts.actors import agent_actor, person_actor, system_actor
from accounts.models import Agent, Member, Role, User
from tests.worlds import World


def test_a_member_acts_with_the_roles_it_holds(world: World) -> None:
    actor = world.person("reviewer")
    assert actor.kind == "person"
    assert set(actor.roles) == {"reviewer"}
    assert actor.has_role(Role.REVIEWER)
    assert not actor.has_role(Role.ADMIN, Role.OPERATOR)
    assert actor.has_role(Role.ADMIN, Role.REVIEWER)


@pytest.mark.parametrize("switched_off", ["member", "user"])
def test_a_person_who_is_switched_off_has_no_role(world: World, switched_off: str) -> None:
    member = world.member("reviewer")
    if switched_off == "member":
        Member.objects.filter(pk=member.pk).update(is_active=False)
    else:
        User.objects.filter(pk=member.user_id).update(is_active=False)
    assert not world.person("reviewer").has_role(*Role)
    assert not world.member("reviewer").has_role(*Role)


def test_neither_an_agent_nor_the_system_holds_a_role(world: World) -> None:
    assert not world.agent.has_role(*Role)
    assert not system_actor("clock", world.tenant.pk).has_role(*Role)


def test_an_actor_is_counted_under_its_kind_and_name(world: World) -> None:
    assert agent_actor(Agent.objects.get()).source == "agent:refund-agent"
    assert person_actor(world.member("reviewer")).source == "person:Rita Demo"
    assert system_actor("worker-a", world.tenant.pk).source == "system:worker-a"
