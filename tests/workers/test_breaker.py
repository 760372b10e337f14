"""The breaker: a sink that keeps saying it is busy, or keeps silent, is left alone for a while, and people see why."""

from datetime import timedelta
from typing import Any

import pytest

from ledger.claims import Grant
from ledger.models import Halt
from ledger.states import AttemptOutcome, ControlEventKind
from tests.worlds import World, claimed, events, report
from workers.breaker import Breaker


@pytest.mark.parametrize(
    ("outcome", "times"),
    [(AttemptOutcome.BUSY, 3), (AttemptOutcome.NOT_SENT, 5), (AttemptOutcome.UNCERTAIN, 5)],
)
def test_unhelpful_answers_in_a_row_pause_the_tool(world: World, outcome: AttemptOutcome, times: int) -> None:
    grant, breaker = claimed(world), Breaker()
    watched(breaker, grant, outcome, times - 1)
    assert not Halt.objects.exists()

    watched(breaker, grant, outcome, 1)

    pause = Halt.objects.get()
    assert (pause.tool_id, pause.tenant, pause.began_by) == (grant.tool_id, world.tenant, "breaker")
    assert "as the test says" in pause.reason
    assert pause.ends_at is not None
    (event,) = events(ControlEventKind.BREAKER_OPENED)
    assert (event.action, event.key) == ("refund", grant.key)


def test_a_useful_answer_between_begins_the_count_anew(world: World) -> None:
    grant, breaker = claimed(world), Breaker()
    watched(breaker, grant, AttemptOutcome.BUSY, 2)
    watched(breaker, grant, AttemptOutcome.REFUSED, 1)
    watched(breaker, grant, AttemptOutcome.BUSY, 2)
    assert not Halt.objects.exists()


def test_look_ups_that_tell_nothing_of_one_effect_keep_no_other_from_being_sent(world: World) -> None:
    grant, breaker = claimed(world), Breaker()
    watched(breaker, grant, AttemptOutcome.UNCERTAIN, 9, sent=False, lookups=1)
    assert not Halt.objects.exists()


def test_a_breaker_waits_as_long_as_the_sink_asks_and_longer_each_time(world: World) -> None:
    grant, breaker = claimed(world), Breaker()
    watched(breaker, grant, AttemptOutcome.BUSY, 3, wait=90.0)
    assert lasts() >= timedelta(seconds=89)
    Halt.objects.update(ends_at=Halt.objects.get().began_at)
    watched(breaker, grant, AttemptOutcome.BUSY, 3)
    first = lasts()
    Halt.objects.update(ends_at=Halt.objects.latest("id").began_at)
    watched(breaker, grant, AttemptOutcome.BUSY, 3)
    assert lasts() == 2 * first


@pytest.mark.parametrize("outcome", [AttemptOutcome.BUSY, AttemptOutcome.UNCERTAIN])
def test_one_call_of_many_orders_that_is_cut_off_is_one_answer(world: World, outcome: AttemptOutcome) -> None:
    grant, breaker = claimed(world), Breaker()
    answered(breaker, grant, [outcome] * 50)
    assert not Halt.objects.exists()


def test_one_useful_answer_among_many_shows_that_the_sink_works(world: World) -> None:
    grant, breaker = claimed(world), Breaker()
    watched(breaker, grant, AttemptOutcome.UNCERTAIN, 4)
    answered(breaker, grant, [AttemptOutcome.UNCERTAIN, AttemptOutcome.COMMITTED, AttemptOutcome.UNCERTAIN])
    watched(breaker, grant, AttemptOutcome.UNCERTAIN, 4)
    assert not Halt.objects.exists()


def test_what_was_on_the_wire_when_the_pause_began_opens_nothing_and_lengthens_no_later_pause(
    world: World,
) -> None:
    grant, breaker = claimed(world), Breaker()
    watched(breaker, grant, AttemptOutcome.UNCERTAIN, 64)
    assert len(events(ControlEventKind.BREAKER_OPENED)) == 1
    first = lasts()
    Halt.objects.update(ends_at=Halt.objects.get().began_at)
    watched(breaker, grant, AttemptOutcome.UNCERTAIN, 4)
    assert Halt.objects.count() == 1  # 59 of the 64 are not counted towards the next one either
    watched(breaker, grant, AttemptOutcome.UNCERTAIN, 1)
    assert lasts() == 2 * first


def watched(breaker: Breaker, grant: Grant, outcome: AttemptOutcome, times: int, **said: Any) -> None:
    for _ in range(times):
        breaker.watch([grant], [report(grant, outcome, **said)])


def answered(breaker: Breaker, grant: Grant, outcomes: list[AttemptOutcome]) -> None:
    """All at one moment."""
    breaker.watch([grant] * len(outcomes), [report(grant, outcome) for outcome in outcomes])


def lasts() -> timedelta:
    pause = Halt.objects.latest("id")
    assert pause.ends_at is not None
    return pause.ends_at - pause.began_at
