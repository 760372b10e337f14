"""Two real sinks to execute on and to count at: the sandbox provider, and a database of one's own."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from django.test import override_settings

from approvals.models import Case
from config.demo import seed
from config.execution import ExecutionSettings
from ledger.models import Tool, ToolVersion
from tests.worlds import World, approved, new_world
from workers import claims, outcomes
from workers.connectors import connector
from workers.leases import Lease
from workers.performance import perform

LEASE = 60.0
REFUND, LEDGER = "refund", "ledger_refund"


@dataclass
class Sinks:
    """Both real sinks, counted at the sink."""

    sandbox: str
    own: str
    charge: str = field(default_factory=lambda: f"ch_{uuid4().hex[:12]}")

    def effects(self) -> Counter[str]:
        """How often each key had its effect, net of nothing."""
        listed = httpx.get(f"{self.sandbox}/_sandbox/effects", params={"charge": self.charge}).json()
        with psycopg.connect(self.own) as own:
            booked = [row[0] for row in own.execute("SELECT key FROM countersign.refund")]
        return Counter([each["idempotency_key"] for each in listed] + booked)

    def fences(self) -> dict[str, int]:
        with psycopg.connect(self.own) as own:
            return dict(own.execute("SELECT resource, token FROM countersign.fence").fetchall())


@pytest.fixture
def sinks(sandbox_url: str, own_database: str) -> Iterator[Sinks]:
    with psycopg.connect(own_database) as own:
        own.execute("TRUNCATE countersign.refund, countersign.effect, countersign.fence")
    quick = ExecutionSettings(call_timeout=0.1, key_margin=600.0)
    addresses = {"SANDBOX_URL": sandbox_url, "REFUND_LEDGER_URL": own_database, "STRIPE_API_KEY": ""}
    connector.cache_clear()
    with override_settings(**addresses, EXECUTION=quick):
        yield Sinks(sandbox_url, own_database)
        for name in ("owned_ledger", "stripe_refunds"):
            close = getattr(connector(name), "close", None)
            if close is not None:
                close()
    connector.cache_clear()


@pytest.fixture
def world(transactional_db: None, sinks: Sinks) -> World:
    """Its sinks list at once."""
    world = new_world()
    for name, version in ((REFUND, seed.REFUND), (LEDGER, seed.LEDGER_REFUND)):
        tool = Tool.objects.get(tenant=world.tenant, name=name)
        ToolVersion.objects.create(tool=tool, number=2, **{**version, "settle_time": timedelta(0)})
    return world


def carry_out() -> int:
    """What a worker does until nothing is due; returns how many grants there were."""
    count = 0
    while grants := [
        *claims.take_over(worker="w", most=50, lease=LEASE),
        *claims.claim(worker="w", most=50, after=0, lease=LEASE).grants,
    ]:
        for grant in grants:
            now = time.monotonic()
            lease = Lease(grant.order_id, grant.token, ends=now + LEASE, call_ends=now + 5.0)
            outcomes.record([perform(grant, lease, worker="w")])
        count += len(grants)
    return count


def ask(world: World, sinks: Sinks, action: str, name: str, *, how: Any = approved) -> Case:
    """A case of this kind at this sink; each on a resource of its own."""
    made: Case = how(
        world,
        name,
        action=action,
        target=f"order:{name}",
        parameters={
            "amount_minor": 1000,
            "currency": "EUR",
            **({"payment": sinks.charge} if action == REFUND else {}),
        },
    )
    return made
