"""Who does an act: every write function takes one, every revision and control event keeps it."""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from accounts.models import Agent, Member, Role

ActorKind = Literal["agent", "person", "system"]


@dataclass(frozen=True, slots=True)
class Actor:
    """An agent, a member of the tenant, or a part of Countersign itself (``system``).

    ``id`` is the agent's or member's number, 0 for the system; ``name`` is what pages show.
    """

    kind: ActorKind
    id: int
    name: str
    tenant_id: UUID
    roles: frozenset[str] = frozenset()

    @property
    def source(self) -> str:
        """How control events and counts name this actor, e.g. ``agent:refund-agent``."""
        return f"{self.kind}:{self.name}"

    @property
    def is_authenticated(self) -> bool:
        """Always: Django and DRF ask this of ``request.user``, and who has neither key nor session is no actor."""
        return True

    def has_role(self, *roles: Role) -> bool:
        """Whether this is a person who holds one of the roles."""
        return bool({*roles} & self.roles)


def agent_actor(agent: Agent) -> Actor:
    """The actor for calls authenticated by one of the agent's keys."""
    return Actor(kind="agent", id=agent.pk, name=agent.name, tenant_id=agent.tenant_id)


def person_actor(member: Member) -> Actor:
    """The actor for a signed-in member, with the roles the member holds now."""
    return Actor(
        kind="person",
        id=member.pk,
        name=member.user.name,
        tenant_id=member.tenant_id,
        roles=frozenset(member.roles) if member.is_active and member.user.is_active else frozenset(),
    )


def system_actor(name: str, tenant_id: UUID) -> Actor:
    """The actor for what the clock or a worker does, e.g. ``worker-a`` or ``clock``."""
    return Actor(kind="system", id=0, name=name, tenant_id=tenant_id)
