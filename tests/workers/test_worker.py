"""How a worker's one claiming thread decides when to look again: no sooner than it pays, no later than a sweep."""

import time
from types import SimpleNamespace
from typing import cast

from django.conf import settings

from ledger.claims import Grant
from ledger.models import Tool
from ledger.states import AttemptOutcome
from tests.worlds import World, approved, claimed, recorded
from workers.slots import MOST_TOGETHER
from workers.worker import SLOTS, Worker, _Barren

SWEEP = settings.EXECUTION.sweep


def on_the_wire(worker: Worker, calls: int, tool_id: int = 0) -> None:
    for _ in range(calls):
        worker._slots.take([cast(Grant, SimpleNamespace(tool_id=tool_id))])


def test_with_nothing_due_it_rests_for_a_sweep(world: World) -> None:
    worker = Worker("worker-a")
    assert worker._take() == SWEEP
    assert 0.0 < worker._take() < SWEEP  # it has not looked for lapsed leases this time


def test_with_no_slot_free_it_waits_for_one(world: World) -> None:
    approved(world)
    worker = Worker("worker-a")
    on_the_wire(worker, SLOTS)
    assert worker._take() == SWEEP


def test_resources_that_are_all_held_are_looked_at_once_a_sweep(world: World) -> None:
    for number in range(5):
        held = claimed(world, f"first-{number}", target=f"order:{number}")
        recorded(held, AttemptOutcome.UNCERTAIN, wait=3600.0)
    for number in range(5):
        approved(world, f"next-{number}", target=f"order:{number}")
    worker = Worker("worker-a")
    on_the_wire(worker, SLOTS - 1)  # so that one is looked for at a time
    worker._claimed_at = time.monotonic() - 1.0
    rests = [worker._claim() for _ in range(8)]
    turn = rests.index(SWEEP) + 1
    assert turn <= 3
    assert rests == (rests[:turn] * 8)[:8]  # no look in between that does not rest in the end


def test_a_turn_is_believed_to_be_barren_until_something_may_have_changed(world: World) -> None:
    tool = Tool.objects.get(tenant=world.tenant, name="refund").pk
    barren = _Barren(until=100.0, rings=3, full=frozenset({tool}))
    assert barren.holds(99.0, 3, [tool, 7])
    assert not barren.holds(101.0, 3, [tool])  # a sweep later
    assert not barren.holds(99.0, 4, [tool])  # the bell, or an outcome of another tool
    assert not barren.holds(99.0, 3, [7])  # it has room
    assert not _Barren(until=100.0, rings=3, full=frozenset()).holds(99.0, 3, [])


def test_a_tool_that_takes_many_is_asked_for_many(world: World) -> None:
    approved(world, action="ledger_refund", parameters={"amount_minor": 1, "currency": "EUR"})
    worker = Worker("worker-a")
    room = worker._slots.room(3)
    assert room.most == 3
    tool = Tool.objects.get(tenant=world.tenant, name="ledger_refund")
    assert room.take(tool.versions.get())
    assert worker._slots.room(3).most == MOST_TOGETHER
