"""Demo organisations: people, agents, write tools and policies. Every name says that it is a demo."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.db import transaction

from accounts import keys
from accounts.models import Agent, Member, Role, Tenant, User
from approvals.models import Policy
from ledger.models import Tool, ToolVersion
from ledger.states import EnforcementClass
from workers import publishing
from workers.connectors.wire import host_of

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
    "probe_target": {
        "facts": {"target": "order:probe"},
        "parameters": {"payment": "ch_probe_{nonce}", "amount_minor": 100, "currency": "EUR"},
    },
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
    "probe_target": {
        "facts": {"target": "order:probe"},
        "parameters": {"amount_minor": 100, "currency": "EUR"},
    },
}
"""Refunds booked in a database of one's own, behind its own fence."""

_INVOICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "invoice": {"type": "string", "pattern": "^[A-Z0-9-]{1,40}$"},
        "amount_minor": {"type": "integer", "minimum": 1, "maximum": 100_000_000},
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
    },
    "required": ["invoice", "amount_minor", "currency"],
    "additionalProperties": False,
}
_NOTICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "subject": {"type": "string", "minLength": 1, "maxLength": 120, "pattern": "^[^\\r\\n]*$"},
        "text": {"type": "string", "minLength": 1, "maxLength": 2000},
    },
    "required": ["subject", "text"],
    "additionalProperties": False,
}
_SETTING: dict[str, Any] = {
    "type": "object",
    "properties": {"value": {"type": "string", "maxLength": 200}},
    "required": ["value"],
    "additionalProperties": False,
}
TOKEN = "SINK_SANDBOX_TOKEN"  # noqa: S105  the name of one
PROBE_TOKEN = "SINK_SANDBOX_PROBE_TOKEN"  # noqa: S105  the name of one


def further_tools(url: str, mail_port: int) -> dict[str, dict[str, Any]]:
    """{name: version} of tools for the sandbox's other services, at these addresses."""
    return {
        "pay_invoice": {
            "title": "Pay a supplier's invoice",
            "schema": _INVOICE,
            "sentence": "Pay {amount} to {target} for invoice {invoice}",
            "enforcement": EnforcementClass.NATURAL_REFERENCE,
            "connector": "supplier_invoices",
            "sink": host_of(url),
            "sink_settings": {"url": url, "token_env": TOKEN},
            "order": {
                "supplier": "{target}",
                "invoice": "{invoice}",
                "amount": "{amount_minor}",
                "currency": "{currency}",
            },
            "amount_field": "amount_minor",
            "currency_field": "currency",
            "value_limits": {"EUR": 1_000_000},
            "settle_time": timedelta(seconds=5),
            "probe_target": {
                "facts": {"target": "supplier:probe"},
                "parameters": {"invoice": "PROBE-{nonce}", "amount_minor": 100, "currency": "EUR"},
                "sink_settings": {"token_env": PROBE_TOKEN},
            },
        },
        "send_notice": {
            "title": "Notice by mail",
            "schema": _NOTICE,
            "sentence": "Send “{subject}” to {target}",
            "resource": "mail:{target}:{reference}:{step}",
            "enforcement": EnforcementClass.NONE,
            "connector": "smtp_mail",
            "sink": f"127.0.0.1:{mail_port}",
            "sink_settings": {
                "host": "127.0.0.1",
                "port": mail_port,
                "from": "Halden Retail demo <notices@halden.demo.example>",
                "security": "none",
            },
            "order": {"to": "{target}", "subject": "{subject}", "text": "{text}"},
        },
        "set_config": {
            "title": "Change a setting",
            "schema": _SETTING,
            "sentence": "Set {target} to {value}",
            "enforcement": EnforcementClass.PROVIDER_KEY,
            "connector": "http_action",
            "sink": host_of(url),
            "sink_settings": {
                "url": f"{url}/actions",
                "look_up": {"url": f"{url}/actions?key={{key}}"},
                "list": {"url": f"{url}/actions?since={{since}}&until={{until}}&after={{cursor}}"},
                "token_env": TOKEN,
                "compare": {"/value": "/value"},
                "answers": {"409": "in_progress"},
            },
            "order": {"target": "{target}", "value": "{value}"},
            "key_window": timedelta(hours=24),
            "probe_target": {
                "facts": {"target": "config:probe-{nonce}"},
                "parameters": {"value": "on"},
                "other": {"value": "off"},
                "sink_settings": {"token_env": PROBE_TOKEN},
            },
        },
    }


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
    people = _people(tenant, handles, label)
    agent = Agent.objects.create(tenant=tenant, name="refund-agent", owner=people["admin"].member)
    tool(tenant, "refund", REFUND, tier=tier, approvals_required=approvals_required)
    tool(tenant, "ledger_refund", LEDGER_REFUND, tier=tier, approvals_required=approvals_required)
    return Organisation(tenant, agent, keys.issue(agent=agent), people)


def _people(tenant: Tenant, handles: Iterable[str], label: str) -> dict[str, Person]:
    people: dict[str, Person] = {}
    for handle in handles:
        name, role = PEOPLE[handle]
        email, password = f"{handle}@{label}.demo.example", secrets.token_urlsafe(PASSWORD_BYTES)
        user = User(email=email, name=name, password=make_password(password))
        people[handle] = Person(Member(tenant=tenant, user=user, roles=[role]), email, password)
    members = [each.member for each in people.values()]
    User.objects.bulk_create([each.user for each in members])
    Member.objects.bulk_create(members)
    return people


def add_further_tools(to: Organisation) -> None:
    """Tools of the other enforcement classes, at the sandbox's own services."""
    for name, version in further_tools(settings.SANDBOX_URL, settings.SANDBOX_PORT + 1).items():
        tool(to.tenant, name, version)


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
    return publishing.publish(tool=made, fields=version)
