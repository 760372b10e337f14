"""Events a provider sends by itself: proven, stored raw, and never more than a reason to look again."""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import pytest
from django.test import Client, override_settings
from pytest_django import DjangoCaptureOnCommitCallbacks
from pytest_django.live_server_helper import LiveServer

from config.demo import seed
from ledger import clock, tool_versions
from ledger.claims import Grant
from ledger.models import Attempt, Finding, InboundEvent, Operation, Reconciliation, Tool, ToolVersion
from ledger.states import AttemptOutcome, ControlEventKind, OperationState
from sandbox.events import EARLY, LATE, OUT_OF_ORDER, TWICE, Events, signature
from sandbox.faults import Fault
from tests.reconciliation.listings import Listed
from tests.worlds import (
    World,
    approved,
    claimed,
    events,
    new_world,
    operation,
    recorded,
    take_over,
    the_machines_agree,
    triggers_off,
)
from workers import connectors, inbound, reconciliation
from workers.connectors.answers import Connector, SinkAway

__all__ = ["the_machines_agree"]

SECRET = "whsec_for_tests"


@pytest.fixture(autouse=True)
def secret() -> Any:
    """The hook's secret, as the environment would give it."""
    with override_settings(STRIPE_WEBHOOK_SECRET=SECRET):
        yield


@pytest.fixture
def unknown(world: World) -> Grant:
    """An operation that may have happened, with its next look-up far away."""
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN, wait=3600.0)
    return grant


def hook(world: World, tool: str = "refund") -> str:
    return f"/hooks/{Tool.objects.get(tenant=world.tenant, name=tool).pk}"


def event(about: dict[str, Any], *, identifier: str = "evt_1", kind: str = "refund.updated") -> str:
    return json.dumps({"id": identifier, "type": kind, "data": {"object": about}})


def refund(grant: Grant | None = None, **changes: Any) -> dict[str, Any]:
    metadata = {"countersign_key": grant.key} if grant else {}
    return {"id": "re_1", "object": "refund", "status": "succeeded", "metadata": metadata, **changes}


def post(
    client: Client, path: str, body: str, *, by: str = SECRET, at: float | None = None, **headers: str
) -> Any:
    signed = {"Stripe-Signature": signature(body, by, at=at), **headers}
    return client.post(path, body, content_type="application/json", headers=signed)


def is_due(grant: Grant) -> bool:
    due = operation(grant).due_at
    return due is not None and due.timestamp() <= time.time()


def test_an_event_is_stored_as_it_came_and_makes_its_operation_due(
    client: Client, world: World, unknown: Grant
) -> None:
    body = event(refund(unknown))

    assert post(client, hook(world), body).status_code == 200

    stored = InboundEvent.objects.get()
    assert (stored.body, stored.kind, stored.operation_id) == (body, "refund.updated", unknown.order_id)
    assert is_due(unknown)
    assert operation(unknown).state == OperationState.OUTCOME_UNKNOWN


def test_an_event_writes_no_state_whatever_it_says(client: Client, world: World) -> None:
    grant = claimed(world)
    done = recorded(grant)
    for number, status in enumerate(["pending", "failed", "canceled"]):
        body = event(refund(grant, status=status), identifier=f"evt_{number}")
        assert post(client, hook(world), body).status_code == 200

    assert operation(grant).settled_at == done.settled_at
    assert operation(grant).state == OperationState.COMMITTED


def test_an_event_that_comes_before_the_answer_leaves_the_worker_that_waits_for_it_alone(
    client: Client, world: World
) -> None:
    grant = claimed(world)
    before = operation(grant).due_at

    post(client, hook(world), event(refund(grant)))

    assert InboundEvent.objects.get().operation_id == grant.order_id
    assert operation(grant).due_at == before


def test_an_event_that_came_while_a_worker_was_at_it_counts_once_its_outcome_is_unknown(
    client: Client, world: World
) -> None:
    grant = claimed(world)
    post(client, hook(world), event(refund(grant)))

    recorded(grant, AttemptOutcome.UNCERTAIN, wait=3600.0)
    assert is_due(grant)

    (again,) = take_over()  # after the event: what it then cannot tell waits as ever
    recorded(again, AttemptOutcome.UNCERTAIN, wait=3600.0, worker="worker-b")
    assert not is_due(again)


def test_an_event_that_came_while_a_worker_was_at_it_leaves_an_order_that_was_not_sent_to_its_pause(
    client: Client, world: World
) -> None:
    grant = claimed(world)
    post(client, hook(world), event(refund(grant)))

    recorded(grant, AttemptOutcome.BUSY, wait=3600.0)

    assert not is_due(grant)


def test_an_event_that_comes_twice_is_one_row(client: Client, world: World, unknown: Grant) -> None:
    body = event(refund(unknown))
    answers = [post(client, hook(world), body).status_code for _ in range(2)]

    assert answers == [200, 200]
    assert InboundEvent.objects.count() == 1


def test_an_event_without_our_key_is_matched_by_what_it_is_about(
    client: Client, world: World, unknown: Grant
) -> None:
    post(client, hook(world), event({"id": "re_9", "charge": "ch_1842"}))

    assert InboundEvent.objects.get().operation_id == unknown.order_id
    assert is_due(unknown)


def test_the_refunds_that_a_charge_lists_are_looked_at(client: Client, world: World, unknown: Grant) -> None:
    post(client, hook(world), event({"id": "ch_other", "refunds": {"data": [1, refund(unknown)]}}))

    assert InboundEvent.objects.get().operation_id == unknown.order_id


@pytest.mark.parametrize(
    "about", [{}, {"id": 7}, {"metadata": []}, {"metadata": {"countersign_key": "f" * 40}}]
)
def test_an_event_about_nothing_we_know_is_stored_all_the_same(
    client: Client, world: World, unknown: Grant, about: dict[str, Any]
) -> None:
    assert post(client, hook(world), event(about)).status_code == 200
    assert InboundEvent.objects.get().operation is None
    assert inbound.match_waiting() == 0
    assert not is_due(unknown)


def test_an_event_that_was_first_is_matched_when_its_operation_is_there(client: Client, world: World) -> None:
    case = approved(world)
    key = operation(case).order.key
    other = new_world()
    post(client, hook(other), event(refund(metadata={"countersign_key": key})))
    assert InboundEvent.objects.get().operation is None  # of another organisation: not theirs to match

    early = InboundEvent(
        tenant=world.tenant,
        tool=operation(case).tool,
        event_id="evt_early",
        kind="refund.created",
        body=event(refund(metadata={"countersign_key": key})),
    )
    early.save()
    assert inbound.match_waiting() == 1
    early.refresh_from_db()
    assert early.operation_id == operation(case).pk
    assert inbound.match_waiting() == 0


@pytest.mark.parametrize(
    "forged",
    [
        {"by": "whsec_of_somebody_else"},
        {"at": 1.0},
        {"Stripe-Signature": ""},
        {"Stripe-Signature": "t=1,v1=00"},
        {"Stripe-Signature": "t=x,v0=ü"},
    ],
    ids=str,
)
def test_a_forged_or_stale_event_is_refused_and_counted(
    client: Client, world: World, unknown: Grant, forged: dict[str, Any]
) -> None:
    answer = post(client, hook(world), event(refund(unknown)), **forged)

    assert answer.status_code == 400
    assert b"Nothing was stored" in answer.content
    assert InboundEvent.objects.count() == 0
    (counted,) = events(ControlEventKind.REFUSED_EVENT)
    assert (counted.tenant_id, counted.action) == (world.tenant.pk, "refund")
    assert not is_due(unknown)


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", '{"id": 1, "type": "x"}', '{"id": "a\\u0000", "type": "x"}', "[" * 5000, '{"id": ""}'],
    ids=lambda body: body[:12] or "nothing",
)
def test_what_is_signed_but_no_event_is_refused(client: Client, world: World, body: str) -> None:
    assert post(client, hook(world), body).status_code == 400
    assert InboundEvent.objects.count() == 0


def test_an_event_that_is_no_text_is_refused(client: Client, world: World) -> None:
    answer = client.post(
        hook(world), b"\xff\xfe", content_type="application/json", headers={"Stripe-Signature": "t=1,v1=0"}
    )
    assert answer.status_code == 400


def test_a_body_beyond_the_limit_is_413(client: Client, world: World) -> None:
    assert post(client, hook(world), event({"padding": "x" * 300_000})).status_code == 413
    assert InboundEvent.objects.count() == 0


def test_where_no_hook_is_nothing_is_stored(client: Client, world: World) -> None:
    body = event(refund())
    assert post(client, "/hooks/999999", body).status_code == 404
    assert post(client, f"/hooks/{10**30}", body).status_code == 404
    assert client.get(hook(world)).status_code == 405
    with override_settings(STRIPE_WEBHOOK_SECRET=""):
        assert post(client, hook(world), body, by="").status_code == 404
    assert InboundEvent.objects.count() == 0


@pytest.mark.parametrize(
    ("name", "status"), [("OTHER_WEBHOOK_SECRET", 200), ("SECRET_KEY", 404), ("STRIPE_API_KEY", 404)]
)
def test_a_tool_names_the_secret_of_its_hook_and_can_name_no_other(
    client: Client, world: World, monkeypatch: pytest.MonkeyPatch, name: str, status: int
) -> None:
    monkeypatch.setenv(name, "whsec_other")
    seed.tool(world.tenant, "other", {**seed.REFUND, "sink_settings": {"webhook_secret": name}})

    assert post(client, hook(world, "other"), event(refund()), by="whsec_other").status_code == status


@pytest.mark.parametrize("fault", [None, EARLY, TWICE, LATE, OUT_OF_ORDER])
@pytest.mark.django_db(transaction=True)
def test_what_the_provider_sends_comes_to_one_look_up(live_server: LiveServer, fault: str | None) -> None:
    world = new_world()
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN, wait=3600.0)

    async def send() -> None:
        sending = Events()
        sending.aim(f"{live_server.url}{hook_of}", SECRET)
        await sending.announce(refund(grant), Fault(fault, times=1, seconds=0.01) if fault else None)
        await asyncio.gather(*sending._under_way)
        await sending.close()

    hook_of = hook(world)
    asyncio.run(send())

    kinds = sorted(InboundEvent.objects.values_list("kind", flat=True))
    assert kinds == ["refund.created", "refund.updated"]
    assert InboundEvent.objects.filter(operation=grant.order_id).count() == 2
    assert is_due(grant)
    assert Operation.objects.get().state == OperationState.OUTCOME_UNKNOWN


# Of what is settled.


@pytest.mark.parametrize(
    ("outcome", "status", "rings"),
    [
        (AttemptOutcome.COMMITTED, "succeeded", 0),
        (AttemptOutcome.COMMITTED, "failed", 1),
        (AttemptOutcome.COMMITTED, "canceled", 1),
        (AttemptOutcome.REFUSED, "failed", 0),
        (AttemptOutcome.REFUSED, "succeeded", 1),
        (AttemptOutcome.UNCERTAIN, "failed", 0),
    ],
)
def test_an_event_that_contradicts_a_settled_outcome_rings_for_its_listing_and_writes_nothing(
    client: Client,
    world: World,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
    outcome: AttemptOutcome,
    status: str,
    rings: int,
) -> None:
    grant = claimed(world)
    before = recorded(grant, outcome)
    with django_capture_on_commit_callbacks() as rung:
        assert post(client, hook(world), event(refund(grant, status=status))).status_code == 200
    assert len(rung) == rings
    assert (operation(grant).state, operation(grant).settled_at) == (before.state, before.settled_at)


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listed]:
    """A sink whose listing is never behind, in the provider's place."""
    listed = Listed()
    monkeypatch.setitem(connectors._MAKERS, "stripe_refunds", lambda: cast(Connector, listed))
    connectors.connector.cache_clear()
    yield listed
    monkeypatch.undo()
    connectors.connector.cache_clear()


def test_a_refund_that_failed_weeks_later_is_found_within_the_pass_that_its_event_asks_for(
    client: Client, world: World, sink: Listed
) -> None:
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    tool_versions.publish(tool=tool, fields={**seed.REFUND, "settle_time": timedelta(0)})
    grant = claimed(world)
    recorded(grant)
    weeks_ago = clock.now() - timedelta(days=20)
    with triggers_off():
        ToolVersion.objects.update(created_at=weeks_ago - timedelta(days=1))
        Attempt.objects.update(started_at=weeks_ago, ended_at=weeks_ago)
        Operation.objects.update(settled_at=weeks_ago)
    effect = sink.add(grant, happened_at=weeks_ago + timedelta(seconds=1))
    assert reconciliation.reconcile(tool=tool) is not None  # today's look through everything
    sink.change(effect, status="failed", reversed=True)
    assert reconciliation.reconcile(tool=tool) is not None
    assert not Finding.objects.exists()  # the quarter-hourly pass does not reach back so far

    post(client, hook(world), event(refund(grant, status="failed")))
    event_id = InboundEvent.objects.get().pk
    assert reconciliation.reconcile_about(event_id=event_id)
    assert Finding.objects.get().kind == "reversed"
    passes = Reconciliation.objects.count()
    assert not reconciliation.reconcile_about(event_id=event_id)  # the same ring again finds it done
    assert Reconciliation.objects.count() == passes


def test_a_ring_goes_on_with_the_pass_that_is_under_way_and_does_not_begin_it_anew(
    client: Client, world: World, sink: Listed
) -> None:
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    tool_versions.publish(tool=tool, fields={**seed.REFUND, "settle_time": timedelta(0)})
    grant = claimed(world)
    recorded(grant)
    with triggers_off():
        ToolVersion.objects.update(created_at=clock.now() - timedelta(days=2))
        Attempt.objects.update(started_at=clock.now() - timedelta(hours=1))
    for _ in range(3):
        sink.add(happened_at=clock.now() - timedelta(minutes=30))
    post(client, hook(world), event(refund(grant, status="failed")))
    sink.away_at_page = 1
    with pytest.raises(SinkAway):
        reconciliation.reconcile(tool=tool)
    sink.away_at_page = None
    reconciliation.reconcile_about(event_id=InboundEvent.objects.get().pk)
    row = Reconciliation.objects.get()
    assert (row.ended_at is not None, row.error, row.effects) == (True, "", 3)
