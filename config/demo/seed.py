"""Demo organisations: people, agents, write tools and policies. Every name says that it is a demo."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction

from accounts import keys
from accounts.models import Agent, Member, Role, Tenant, User
from approvals.models import Policy
from ledger.models import Tool, ToolVersion
from ledger.states import EnforcementClass

REFUND: dict[str, Any] = {
    "title": "Refund",
    "schema": {
        "type": "object",
        "properties": {
            "payment": {"type": "string", "pattern": "^ch_[A-Za-z0-9_]{1,60}$"},
            "amount_minor": {"type": "integer", "minimum": 1, "maximum": 100_000_000},
            "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
        },
        "required": ["payment", "amount_minor", "currency"],
        "additionalProperties": False,
    },
    "sentence": "Refund {amount} on {payment}",
    "enforcement": EnforcementClass.PROVIDER_KEY,
    "connector": "stripe_refunds",
    "sink": "stripe",
    "order": {"charge": "{payment}", "amount": "{amount_minor}", "currency": "{currency}"},
    "amount_field": "amount_minor",
    "currency_field": "currency",
    "value_limits": {"EUR": 500_000, "GBP": 500_000, "USD": 500_000, "JPY": 800_000},
    "key_window": timedelta(hours=24),
}
"""Refunds through Stripe's API: a key is kept for at least 24 hours (Stripe, Idempotent requests)."""

REFUND_HIGH: dict[str, Any] = {**REFUND, "title": "High-value refund"}
"""The same refund under a stricter policy: two reviewers, the amount typed."""

LEDGER_REFUND: dict[str, Any] = {
    **REFUND,
    "title": "Ledger refund",
    "sentence": "Credit {amount} for {target}",
    "enforcement": EnforcementClass.OWNED_WRITE,
    "connector": "owned_ledger",
    "sink": "refund-ledger",
    "order": {"order": "{target}", "amount": "{amount_minor}", "currency": "{currency}"},
    "schema": {
        **REFUND["schema"],
        "properties": {
            name: form for name, form in REFUND["schema"]["properties"].items() if name != "payment"
        },
        "required": ["amount_minor", "currency"],
    },
    "key_window": None,
}
"""Refunds booked in a database of one's own, behind its own fence."""

PASSWORD_BYTES = 12


@dataclass(frozen=True, slots=True)
class Person:
    """A demo member and the password to sign in with."""

    member: Member
    email: str
    password: str


@dataclass(frozen=True, slots=True)
class Organisation:
    """A demo tenant with one agent, its key, and people by what they are for."""

    tenant: Tenant
    agent: Agent
    agent_key: str
    people: dict[str, Person]


PEOPLE = {
    "reviewer": ("Rita Demo", Role.REVIEWER),
    "second_reviewer": ("Sam Demo", Role.REVIEWER),
    "operator": ("Olga Demo", Role.OPERATOR),
    "admin": ("Adam Demo", Role.ADMIN),
    "auditor": ("Aino Demo", Role.AUDITOR),
}


@transaction.atomic
def organisation(
    name: str, *, label: str, tier: int = 1, approvals_required: int = 1, handles: Iterable[str] = PEOPLE
) -> Organisation:
    """Makes a demo tenant: tools under one policy, an agent, people at ``@<label>.demo.example``."""
    tenant = Tenant.objects.create(name=name, is_demo=True)
    people = {handle: _person(tenant, handle, label) for handle in handles}
    agent = Agent.objects.create(tenant=tenant, name="refund-agent", owner=people["admin"].member)
    tool(tenant, "refund", REFUND, tier=tier, approvals_required=approvals_required)
    tool(tenant, "ledger_refund", LEDGER_REFUND, tier=tier, approvals_required=approvals_required)
    return Organisation(tenant, agent, keys.issue(agent=agent), people)


def _person(tenant: Tenant, handle: str, label: str) -> Person:
    name, role = PEOPLE[handle]
    email, password = f"{handle}@{label}.demo.example", secrets.token_urlsafe(PASSWORD_BYTES)
    user = User.objects.create_user(email=email, password=password, name=name)
    return Person(Member.objects.create(tenant=tenant, user=user, roles=[role]), email, password)


def tool(
    tenant: Tenant,
    name: str,
    version: dict[str, Any],
    *,
    tier: int = 1,
    approvals_required: int = 1,
    expires_after: timedelta = timedelta(days=3),
) -> ToolVersion:
    """Registers a write tool with its first version and its policy."""
    made = Tool.objects.create(tenant=tenant, name=name)
    Policy.objects.create(
        tenant=tenant,
        tool=made,
        version=1,
        tier=tier,
        approvals_required=approvals_required,
        expires_after=expires_after,
    )
    return ToolVersion.objects.create(tool=made, number=1, **version)
