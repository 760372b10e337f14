"""How many calls a worker has on the wire: in all and by tool; one at a time where nobody could tell a repeat."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from ledger.claims import Grant
from ledger.models import Tool, ToolVersion
from ledger.states import EnforcementClass
from tests.worlds import LEASE, World, approved
from workers import claims
from workers.slots import MOST_TOGETHER, Slots


def version(connector: str = "stripe_refunds", *, limit: int = 16, **changes: str) -> ToolVersion:
    return ToolVersion(
        tool_id=1,
        connector=connector,
        enforcement=changes.get("enforcement", EnforcementClass.PROVIDER_KEY),
        calls_in_flight=limit,
    )


ON_ITS_WAY = cast(Grant, SimpleNamespace(tool_id=1))


def taken(slots: Slots, wanted: int, of: ToolVersion) -> int:
    room = slots.room(slots.free)
    return sum(room.take(of) for _ in range(wanted))


def test_a_claim_takes_no_more_than_there_are_free_slots() -> None:
    assert taken(Slots(16), 50, version(limit=40)) == 16


def test_a_tool_takes_no_more_than_it_may_have_in_flight() -> None:
    assert taken(Slots(16), 50, version(limit=3)) == 3


def test_tools_that_cannot_tell_a_repeat_go_one_at_a_time() -> None:
    for enforcement in (EnforcementClass.NATURAL_REFERENCE, EnforcementClass.NONE):
        assert taken(Slots(16), 50, version(enforcement=enforcement)) == 1


def test_orders_that_go_out_together_share_a_slot() -> None:
    assert taken(Slots(1), 500, version("owned_ledger")) == 3 * MOST_TOGETHER


def test_no_more_is_locked_than_can_be_sent_until_a_tool_takes_many_in_a_call() -> None:
    slots = Slots(16)
    assert slots.room(5).most == 5
    assert slots.room(5).take(version("owned_ledger"))
    assert slots.room(5).most == MOST_TOGETHER


def test_a_patient_claim_waits_until_a_tool_has_room_for_half_of_what_it_may_have_in_flight() -> None:
    for limit, held, waits in ((16, 9, True), (16, 8, False), (16, 0, False), (1, 1, True), (1, 0, False)):
        slots = Slots(16)
        assert taken(slots, 1, version(limit=limit)) == 1
        for _ in range(held):
            slots.take([ON_ITS_WAY])
        assert bool(slots.room(slots.free, patient=True).full) == waits, (limit, held)
        assert bool(slots.room(slots.free).full) == (held == limit)


def test_what_the_worker_has_no_room_for_stays_due_and_what_comes_back_makes_room(world: World) -> None:
    limited(world, 2)
    for number in range(3):
        approved(world, str(number), target=f"order:{number}")
    slots = Slots(16)

    first = claimed_into(slots)
    assert len(first) == 2
    assert slots.room(slots.free).full == [first[0].tool_id]
    assert claimed_into(slots) == []

    slots.give_back(1, first[:1])
    assert len(claimed_into(slots)) == 1
    assert slots.free == 14


def test_a_claim_says_whether_there_may_be_more_and_takes_nothing_where_there_is_no_room(
    world: World,
) -> None:
    limited(world, 2)
    for number in range(3):
        approved(world, str(number), target=f"order:{number}")
    slots = Slots(16)

    none = claims.claim(worker="worker-a", most=50, after=0, lease=LEASE, room=slots.room(0))
    assert (none.grants, none.more) == ([], True)
    first = claims.claim(worker="worker-a", most=50, after=0, lease=LEASE, room=slots.room(16))
    assert (len(first.grants), first.more) == (2, True)
    last = claims.claim(worker="worker-a", most=50, after=0, lease=LEASE, room=slots.room(16))
    assert (len(last.grants), last.more) == (1, False)


def claimed_into(slots: Slots) -> Sequence[Grant]:
    room = slots.room(slots.free)
    grants = claims.claim(worker="worker-a", most=50, after=0, lease=LEASE, room=room).grants
    for grant in grants:
        slots.take([grant])
    return grants


def limited(world: World, most: int) -> None:
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    fields = {
        field.name: getattr(tool.versions.get(), field.name)
        for field in ToolVersion._meta.concrete_fields
        if field.name not in ("id", "number", "created_at", "calls_in_flight")
    }
    ToolVersion.objects.create(**fields, number=2, calls_in_flight=most)
