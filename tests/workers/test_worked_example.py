"""Case 1842 against a real provider in a process of its own: two workers, one refund; and a lease that is over."""

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pytest_django import Settings

from approvals.models import Case
from ledger.claims import Grant
from ledger.models import Evidence, Finding, Resource
from ledger.states import ControlEventKind
from tests.sandbox.conftest import SandboxProcess
from tests.worlds import (
    LAPSED,
    LEASE,
    World,
    approve,
    attempts,
    case_of,
    claim,
    claimed,
    events,
    history,
    make_due,
    operation,
    proposed,
    revised,
    take_over,
)
from workers import connectors, hints, outcomes
from workers.leases import Lease
from workers.performance import perform


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    with SandboxProcess(tmp_path_factory.mktemp("sandbox") / "sandbox.sqlite3") as process:
        yield process


@pytest.fixture(autouse=True)
def _connected(provider: SandboxProcess, settings: Settings) -> Iterator[None]:
    """The product's own connector for refunds, pointed at this provider."""
    settings.SANDBOX_URL = provider.url
    connectors.connector.cache_clear()
    provider.release()
    yield
    connectors.connector("stripe_refunds").close()  # type: ignore[attr-defined]
    connectors.connector.cache_clear()


@pytest.fixture
def charge() -> str:
    return f"ch_{uuid4().hex}"


def lease_of(grant: Grant, *, left: float = 10.0) -> Lease:
    now = time.monotonic()
    return Lease(order_id=grant.order_id, token=grant.token, ends=now + left, call_ends=now + 10.0)


def approved_at_seven(world: World, charge: str) -> Case:
    case = proposed(world, payment=charge, amount_minor=1)
    for amount in (2, 3, 4, 5, 125_000):
        revised(world, case, payment=charge, amount_minor=amount)
    return approve(case, world.reviewer)


def test_two_workers_and_one_refund(world: World, provider: SandboxProcess, charge: str) -> None:
    case = approved_at_seven(world, charge)
    Resource.objects.update(token=480)

    # Worker A claims, sends, and stalls before it can record what it was told.
    (first,) = claim(worker="worker-a", lease=LAPSED)
    kept_back = perform(first, lease_of(first), worker="worker-a")
    # The same message comes to worker B; the lease is over, so B takes over, asks the provider and records.
    hint = {"key": first.key, "fingerprint": first.fingerprint}
    hints.observe([hint, hint], worker="worker-b")
    (second,) = take_over(worker="worker-b")
    outcomes.record([perform(second, lease_of(second), worker="worker-b")])
    settled = operation(case)
    # A wakes.
    outcomes.record([kept_back])

    assert (first.token, second.token) == (481, 482)
    assert history(case)[6:] == [
        (7, "approved", "approved"),
        (8, "executing", "claimed"),
        (9, "executed", "executed"),
    ]
    (effect,) = provider.effects(charge=charge)
    assert effect["idempotency_key"] == settled.order.key == first.key
    assert (settled.state, settled.reference) == ("committed", effect["id"])
    assert operation(case).settled_at == settled.settled_at
    assert [(each.token, each.outcome, each.sent) for each in attempts(case)] == [
        (481, "superseded", None),
        (482, "committed", False),
    ]
    assert [(kept.token, kept.reference) for kept in Evidence.objects.all()] == [(481, effect["id"])]
    assert [(event.kind, event.source) for event in events()] == [
        (ControlEventKind.REPLAY, "queue:worker-b"),
        (ControlEventKind.FENCED_WRITE, "worker:worker-a"),
    ]
    assert not Finding.objects.exists()
    assert world.resource().version == 1


def test_an_answer_that_was_lost_is_found_again(world: World, provider: SandboxProcess, charge: str) -> None:
    provider.order_fault("drop_after_commit", charge=charge)
    first = claimed(world, payment=charge)
    said = perform(first, lease_of(first), worker="worker-a")
    outcomes.record([said])
    assert operation(first).state == "outcome_unknown"

    make_due()
    (second,) = take_over()
    outcomes.record([perform(second, lease_of(second), worker="worker-b")])

    (effect,) = provider.effects(charge=charge)
    assert (operation(first).state, operation(first).reference) == ("committed", effect["id"])
    assert case_of(first).state == "executed"


def test_every_attempt_sends_the_same_bytes_under_the_same_key(
    world: World, provider: SandboxProcess, charge: str
) -> None:
    provider.order_fault("drop_before_commit", charge=charge)
    first = claimed(world, payment=charge)
    outcomes.record([perform(first, lease_of(first), worker="worker-a")])
    make_due()
    (second,) = take_over()
    outcomes.record([perform(second, lease_of(second), worker="worker-b")])

    sends = [each for each in provider.requests(charge=charge) if each["method"] == "POST"]
    assert len(sends) == 2
    assert {each["idempotency_key"] for each in sends} == {first.key}
    assert sends[0]["parameters"] == sends[1]["parameters"]
    assert len(provider.effects(charge=charge)) == 1
    assert operation(first).state == "committed"


@pytest.mark.parametrize("left", [0.0, -5.0])
def test_a_lease_that_is_over_puts_nothing_on_the_wire(
    world: World, provider: SandboxProcess, charge: str, left: float
) -> None:
    grant = claimed(world, payment=charge)
    outcomes.record([perform(grant, lease_of(grant, left=left), worker="worker-a")])

    assert provider.requests(charge=charge) == []
    assert (operation(grant).state, attempts(grant)[0].outcome) == ("started", "not_sent")

    make_due()
    (again,) = take_over()
    assert not again.maybe_sent
    outcomes.record([perform(again, lease_of(again), worker="worker-b")])
    assert [each["method"] for each in provider.requests(charge=charge)] == ["POST"]
    assert case_of(grant).state == "executed"


def test_a_repeat_whose_lease_is_over_asks_and_sends_nothing(
    world: World, provider: SandboxProcess, charge: str
) -> None:
    provider.order_fault("drop_before_commit", charge=charge)
    first = claimed(world, payment=charge)
    outcomes.record([perform(first, lease_of(first), worker="worker-a")])
    make_due()
    (second,) = take_over()

    outcomes.record([perform(second, lease_of(second, left=0.0), worker="worker-b")])

    assert [each["method"] for each in provider.requests(charge=charge)] == ["POST", "GET"]
    assert operation(first).state == "outcome_unknown"
    assert provider.effects(charge=charge) == []


def test_a_provider_that_is_not_there_was_sent_nothing(
    world: World, provider: SandboxProcess, charge: str, settings: Settings
) -> None:
    settings.SANDBOX_URL = "http://127.0.0.1:1"
    connectors.connector.cache_clear()
    grant = claimed(world, payment=charge)
    outcomes.record([perform(grant, lease_of(grant), worker="worker-a")])
    assert (operation(grant).state, attempts(grant)[0].outcome) == ("started", "not_sent")


def test_a_refusal_is_final_and_its_reason_is_kept(
    world: World, provider: SandboxProcess, charge: str
) -> None:
    provider.order_fault("decline", charge=charge)
    grant = claimed(world, payment=charge)
    outcomes.record([perform(grant, lease_of(grant, left=LEASE), worker="worker-a")])
    it = operation(grant)
    assert (it.state, case_of(grant).state) == ("failed_before_commit", "failed")
    assert it.reason
    assert provider.effects(charge=charge) == []
