"""Leases: renewed by the token in force alone, no longer than the call, and judged by the monotonic clock."""

import time

import pytest
from pytest_django import DjangoAssertNumQueries

from ledger import claims
from ledger.claims import Grant
from ledger.models import Operation
from ledger.states import AttemptOutcome
from tests.worlds import LAPSED, WORKER, World, claimed, operation, recorded, take_over
from workers.leases import Heartbeat, Lease


def renew(grant: Grant, *, worker: str = WORKER, lease: float = 60.0) -> bool:
    pair = (grant.order_id, grant.token)
    return claims.renew([pair], worker=worker, lease=lease) == {pair}


def lease_of(grant: Grant, *, call: float = 20.0) -> Lease:
    now = time.monotonic()
    return Lease(order_id=grant.order_id, token=grant.token, ends=now, call_ends=now + call)


def test_the_token_in_force_renews_its_lease(world: World) -> None:
    grant = claimed(world, lease=LAPSED)
    assert renew(grant)
    assert take_over() == []


def test_a_renewal_changes_nothing_but_the_time(world: World) -> None:
    grant = claimed(world)
    before = Operation.objects.values().get()
    renew(grant)
    after = Operation.objects.values().get()
    assert {name for name, value in before.items() if dict(after)[name] != value} == {"due_at"}


def test_a_stalled_worker_does_not_take_a_lease_back(world: World) -> None:
    stalled = claimed(world, lease=LAPSED)
    (successor,) = take_over(worker="worker-b")
    due_at = operation(stalled).due_at
    assert not renew(stalled)
    assert operation(stalled).due_at == due_at
    assert renew(successor, worker="worker-b")


def test_the_token_alone_does_not_renew_for_another_worker(world: World) -> None:
    grant = claimed(world)
    assert not renew(grant, worker="worker-b")


@pytest.mark.parametrize(
    "outcome", [AttemptOutcome.COMMITTED, AttemptOutcome.REFUSED, AttemptOutcome.NOT_SENT]
)
def test_what_has_been_recorded_is_renewed_no_more(world: World, outcome: AttemptOutcome) -> None:
    grant = claimed(world)
    recorded(grant, outcome)
    before = Operation.objects.values().get()
    assert not renew(grant)
    assert Operation.objects.values().get() == before


def test_many_leases_are_renewed_at_once_and_the_lost_ones_named(world: World) -> None:
    grants = [claimed(world, str(number), target=f"order:{number}") for number in range(3)]
    recorded(grants[1])
    pairs = [(grant.order_id, grant.token) for grant in grants]
    assert claims.renew(pairs, worker=WORKER, lease=60.0) == {pairs[0], pairs[2]}
    assert claims.renew([], worker=WORKER, lease=60.0) == set()


# The heart.


def test_a_beat_renews_what_is_held(world: World) -> None:
    heart, lease = Heartbeat(worker=WORKER, lease=30.0), lease_of(claimed(world, lease=LAPSED))
    heart.hold(lease)
    asked = time.monotonic()

    heart.beat()

    assert asked + 30.0 <= lease.ends <= time.monotonic() + 30.0
    assert lease.holds()
    assert take_over() == []


def test_a_lease_ends_no_later_than_the_database_says(world: World) -> None:
    # Counted from before the renewal was asked for: the database counts from when it got there.
    heart, lease = Heartbeat(worker=WORKER, lease=30.0), lease_of(claimed(world))
    heart.hold(lease)
    heart.beat()
    with_database = Operation.objects.extra(  # the two clocks run alike, whatever they show
        select={"left": "extract(epoch FROM due_at - clock_timestamp())"}
    ).values_list("left", flat=True)
    left_there = float(with_database.get())
    assert lease.ends - time.monotonic() <= left_there


def test_the_heart_stops_for_a_call_past_its_deadline(world: World) -> None:
    heart, lease = Heartbeat(worker=WORKER, lease=30.0), lease_of(claimed(world, lease=LAPSED), call=-0.001)
    heart.hold(lease)

    heart.beat()

    assert not lease.holds()
    assert len(take_over(worker="worker-b")) == 1  # a hung call keeps nothing


def test_a_beat_finds_out_that_the_grant_is_lost(world: World) -> None:
    heart, lease = Heartbeat(worker=WORKER, lease=30.0), lease_of(claimed(world, lease=LAPSED))
    lease.ends += 30.0
    heart.hold(lease)
    take_over(worker="worker-b")
    assert lease.holds()
    heart.beat()
    assert lease.lost
    assert not lease.holds()


def test_an_old_grant_is_not_kept_alive_by_the_new_one_of_the_same_worker(world: World) -> None:
    heart = Heartbeat(worker=WORKER, lease=30.0)
    old = lease_of(claimed(world, lease=LAPSED))
    (again,) = take_over(worker=WORKER, lease=LAPSED)
    new = lease_of(again)
    for order in ((old, new), (new, old)):
        for lease in order:
            lease.lost = False
            heart.hold(lease)
        heart.beat()
        assert (old.lost, new.lost) == (True, False)
        for lease in order:
            heart.release(lease)


def test_what_was_released_is_renewed_no_more(world: World) -> None:
    heart, lease = Heartbeat(worker=WORKER, lease=30.0), lease_of(claimed(world, lease=LAPSED))
    heart.hold(lease)
    heart.release(lease)
    heart.beat()
    assert len(take_over(worker="worker-b")) == 1


def test_a_heart_that_holds_nothing_asks_nothing(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(0):
        Heartbeat(worker=WORKER, lease=30.0).beat()


@pytest.mark.parametrize(
    ("ends", "call_ends", "lost", "holds"),
    [(60, 60, False, True), (-1, 60, False, False), (60, -1, False, False), (60, 60, True, False)],
)
def test_a_lease_holds_while_nothing_of_it_is_over(
    ends: int, call_ends: int, lost: bool, holds: bool
) -> None:
    now = time.monotonic()
    lease = Lease(order_id=1, token=1, ends=now + ends, call_ends=now + call_ends, lost=lost)
    assert lease.holds() is holds
