"""The sandbox provider and a database of one's own, listed by their own connectors and held against the ledger."""

import time

import httpx
import psycopg
import pytest

from ledger.models import Finding, Operation, Tool
from tests.crashes.conftest import own_database, sandbox_url
from tests.real_sinks import LEDGER, REFUND, Sinks, ask, carry_out, sinks
from tests.real_sinks import world as real_world
from tests.worlds import World
from workers.reconciliation import reconcile

PATIENCE = 60.0
"""Seconds: the provider dates its effects to whole ones."""

__all__ = ["own_database", "real_world", "sandbox_url", "sinks"]


@pytest.fixture
def world(real_world: World) -> World:
    return real_world


def passed(world: World, action: str, *, effects: int) -> None:
    """Passes over what is old enough, until it is as much as there is."""
    tool = Tool.objects.get(tenant=world.tenant, name=action)
    deadline = time.monotonic() + PATIENCE
    while (row := reconcile(tool=tool)) is None or row.effects < effects or not row.operations:
        assert time.monotonic() < deadline, f"only {row and row.effects} effects were listed"


def kinds() -> list[str]:
    return sorted(Finding.objects.filter(closed_at=None).values_list("kind", flat=True))


def test_the_provider_s_listing_shows_what_was_made_behind_our_back(world: World, sinks: Sinks) -> None:
    case = ask(world, sinks, REFUND, "r1")
    carry_out()
    passed(world, REFUND, effects=1)
    assert kinds() == []

    key = Operation.objects.get(order__subject=case.pk).order.key
    refund_by_hand(sinks, metadata={"countersign_key": key})
    refund_by_hand(sinks)
    passed(world, REFUND, effects=3)

    assert kinds() == ["foreign", "twice"]


def refund_by_hand(sinks: Sinks, metadata: dict[str, str] | None = None) -> None:
    body = {"charge": sinks.charge, "amount": "1000", "currency": "eur"}
    body |= {f"metadata[{name}]": value for name, value in (metadata or {}).items()}
    headers = {"Authorization": "Bearer sk_sandbox_by_hand"}
    httpx.post(f"{sinks.sandbox}/v1/refunds", data=body, headers=headers).raise_for_status()


def test_one_s_own_ledger_shows_what_is_gone_and_what_is_other(world: World, sinks: Sinks) -> None:
    for name in ("l1", "l2", "l3"):
        ask(world, sinks, LEDGER, name)
    carry_out()
    passed(world, LEDGER, effects=3)
    assert kinds() == []

    with psycopg.connect(sinks.own) as own:
        own.execute(
            "DELETE FROM countersign.effect WHERE reference = (SELECT min(reference) FROM countersign.effect)"
        )
    passed(world, LEDGER, effects=2)
    assert kinds() == ["missing"]
