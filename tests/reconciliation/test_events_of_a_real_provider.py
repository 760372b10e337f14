"""The sandbox provider sends events while a worker waits for its answer; whatever they are, there is one outcome."""

import time
from collections.abc import Iterator

import httpx
import pytest
from django.test import override_settings
from pytest_django.live_server_helper import LiveServer

from config.execution import ExecutionSettings
from ledger.models import Attempt, InboundEvent, Operation, Tool
from ledger.states import OperationState
from tests.crashes.conftest import own_database, sandbox_url
from tests.real_sinks import REFUND, Sinks, ask, carry_out, sinks
from tests.real_sinks import world as real_world
from tests.worlds import World, make_due

__all__ = ["own_database", "real_world", "sandbox_url", "sinks"]

SECRET = "whsec_for_tests"
PATIENCE = 60.0  # seconds


@pytest.fixture
def world(real_world: World, sinks: Sinks, live_server: LiveServer) -> Iterator[World]:
    """Its refunds are announced to the tool's hook."""
    tool = Tool.objects.get(tenant=real_world.tenant, name=REFUND)
    order(sinks, "events", {"url": f"{live_server.url}/hooks/{tool.pk}", "secret": SECRET})
    with override_settings(STRIPE_WEBHOOK_SECRET=SECRET):
        yield real_world
    order(sinks, "events", {"url": "", "secret": ""})


def order(sinks: Sinks, what: str, content: dict[str, object]) -> None:
    httpx.post(f"{sinks.sandbox}/_sandbox/{what}", json=content).raise_for_status()


def wait_for_events(count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while InboundEvent.objects.exclude(operation=None).count() < count:
        assert time.monotonic() < deadline, list(InboundEvent.objects.values_list("kind", "operation_id"))
        time.sleep(0.02)


@pytest.mark.parametrize("fault", ["event_early", "event_twice", "event_late", "event_out_of_order", None])
@pytest.mark.django_db(transaction=True)
def test_an_executed_refund_is_one_outcome_however_its_events_come(
    world: World, sinks: Sinks, fault: str | None
) -> None:
    if fault:
        order(sinks, "faults", {"fault": fault, "charge": sinks.charge, "seconds": 0.1})
    ask(world, sinks, REFUND, "r1")
    carry_out()
    wait_for_events(2)
    make_due()
    carry_out()

    assert sorted(InboundEvent.objects.values_list("kind", flat=True)) == ["refund.created", "refund.updated"]
    assert Operation.objects.get().state == OperationState.COMMITTED
    assert Attempt.objects.count() == 1
    assert list(sinks.effects().values()) == [1]


@pytest.mark.django_db(transaction=True)
def test_an_event_brings_the_look_up_forward_where_the_answer_was_lost(world: World, sinks: Sinks) -> None:
    """Whether it comes before the worker has recorded that it does not know, or after."""
    order(sinks, "faults", {"fault": "drop_after_commit", "charge": sinks.charge})
    order(sinks, "faults", {"fault": "event_late", "charge": sinks.charge, "seconds": 0.2})
    ask(world, sinks, REFUND, "r1")
    for_ever = ExecutionSettings(call_timeout=0.1, backoff=3600.0, backoff_most=3600.0)
    with override_settings(EXECUTION=for_ever):
        carry_out()
        wait_for_events(2)  # one that is being matched holds the resource, and a take-over passes it by
        carry_out()

    assert Operation.objects.get().state == OperationState.COMMITTED
    assert [each.outcome for each in Attempt.objects.order_by("number")] == ["uncertain", "committed"]
    assert list(sinks.effects().values()) == [1]
