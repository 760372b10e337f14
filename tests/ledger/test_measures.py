"""The six measures: each is moved by an exact number through what the product does, and asks for a review in time."""

from datetime import timedelta

import pytest
from django.db.models import F
from django.db.models.functions import Now

from approvals.errors import VersionConflict
from approvals.states import Verdict
from ledger import control_events, findings, looks, sweeps
from ledger.measures import WINDOWS, Measures, measures
from ledger.models import Attempt, ControlEvent, Finding, Reconciliation, Sweep, Tool
from ledger.states import AttemptOutcome, ControlEventKind, FindingKind
from tests import worlds
from tests.worlds import World
from workers import hints, outcomes

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def now(world: World, window: str = "24h") -> Measures:
    return measures(tenant_id=world.tenant.pk, window=WINDOWS[window])


def counts(found: Measures) -> dict[str, int]:
    return {each.name: each.count for each in found.six}


def triggered(found: Measures) -> dict[str, str]:
    return {each.name: each.triggered for each in found.six if each.triggered}


def count(world: World, kind: ControlEventKind, times: int = 1, *, ago: timedelta = timedelta(0)) -> None:
    """So many events of the kind, as long ago as said."""
    for _ in range(times):
        control_events.record(
            tenant_id=world.tenant.pk, kind=kind, source="agent:refund-agent", action="refund"
        )
    if ago:
        newest = ControlEvent.objects.order_by("-pk").values_list("pk", flat=True)[:times]
        with worlds.triggers_off():
            ControlEvent.objects.filter(pk__in=list(newest)).update(at=Now() - ago)


def test_nothing_has_happened_and_nothing_asks_for_a_review(world: World) -> None:
    found = now(world)
    assert set(counts(found).values()) == {0}
    assert triggered(found) == {}
    assert (found.identity.largest, found.unknowns.oldest, found.oldest_due) == (None, None, None)
    assert len(found.duplicates.course) == 24


def test_every_measure_moves_by_exactly_what_was_done(world: World) -> None:
    stranger = worlds.new_world()
    case = worlds.proposed(world)
    for _ in range(2):
        worlds.proposed(world)
    seen = worlds.tag(case)
    worlds.revised(world, case, amount_minor=1)
    for _ in range(3):
        with pytest.raises(VersionConflict):
            worlds.say(Verdict.APPROVE, case, world.reviewer, seen=seen)
    stalled = worlds.claimed(world, "1843", target="order:2", lease=worlds.LAPSED)
    worlds.recorded(worlds.take_over()[0], worker="worker-b")
    outcomes.record([worlds.report(stalled)])
    count(world, ControlEventKind.SERIALIZATION_RETRY, 4)
    worlds.recorded(worlds.claimed(world, "1844", target="order:3"), AttemptOutcome.UNCERTAIN, wait=900.0)
    worlds.claimed(world, "1845", target="order:4", lease=worlds.LAPSED)

    found = now(world)

    assert counts(found) == {
        "duplicates": 2,
        "conflicts": 3,
        "fenced": 1,
        "serialization": 4,
        "unknown": 2,
        "effects": 0,
    }
    assert found.duplicates.parts == {"agent:refund-agent": 2}
    assert found.conflicts.parts == {"refund": 3}
    assert found.fenced.parts == {"worker:worker-a": 1}
    assert found.exposure == {"EUR": 250_000}
    assert found.settled["committed"][-1] == 1
    assert triggered(found) == {"conflicts": "One case of refund had 3 in 24 h."}
    assert found.conflicts.about == case.pk
    assert {window: counts(now(world, window))["fenced"] for window in WINDOWS} == dict.fromkeys(WINDOWS, 1)
    assert set(counts(now(stranger)).values()) == {0}
    assert now(stranger).exposure == {}


def test_a_message_of_the_queue_that_comes_again_is_a_duplicate_of_that_queue(world: World) -> None:
    grant = worlds.claimed(world)
    hints.observe([{"key": grant.key, "fingerprint": grant.fingerprint}], worker="worker-b")
    assert now(world).duplicates.parts == {"queue:worker-b": 1}


def test_a_source_that_suddenly_repeats_itself_asks_for_a_review_compared_with_its_own_past(
    world: World,
) -> None:
    count(world, ControlEventKind.REPLAY, 35, ago=timedelta(days=3))  # five a day in the week before
    count(world, ControlEventKind.REPLAY, 10)
    assert triggered(now(world)) == {}
    count(world, ControlEventKind.REPLAY, 1)
    words = "agent:refund-agent had 11 in 24 h; its daily mean of the week before is 5.0."
    assert [triggered(now(world, window)) for window in WINDOWS] == 3 * [{"duplicates": words}]


def test_few_repeats_of_a_new_source_ask_for_nothing(world: World) -> None:
    count(world, ControlEventKind.REPLAY, 9)
    assert triggered(now(world)) == {}
    count(world, ControlEventKind.REPLAY, 1)
    assert list(triggered(now(world))) == ["duplicates"]


def test_conflicts_on_one_action_ask_for_a_review_above_five_a_day(world: World) -> None:
    count(world, ControlEventKind.VERSION_CONFLICT, 5)
    count(world, ControlEventKind.VERSION_CONFLICT, 4, ago=timedelta(days=2))
    assert triggered(now(world, "7d")) == {}
    count(world, ControlEventKind.VERSION_CONFLICT, 1)
    assert triggered(now(world, "7d")) == {"conflicts": "refund had 6 in 24 h."}


def test_fenced_writes_ask_for_a_review_only_when_they_go_on(world: World) -> None:
    count(world, ControlEventKind.FENCED_WRITE, 9, ago=5 * HOUR)
    count(world, ControlEventKind.FENCED_WRITE, 4)
    assert triggered(now(world)) == {}
    count(world, ControlEventKind.FENCED_WRITE, 4, ago=1.5 * HOUR)
    assert "Two hours in a row were above 3" in triggered(now(world, "30d"))["fenced"]


def test_one_exhausted_retry_budget_asks_for_a_review(world: World) -> None:
    count(world, ControlEventKind.SERIALIZATION_RETRY, 19)
    assert triggered(now(world)) == {}
    count(world, ControlEventKind.SERIALIZATION_EXHAUSTED)
    assert "were used up once" in triggered(now(world))["serialization"]
    assert (now(world).serialization.count, now(world).exhausted) == (19, 1)


def test_rising_retries_ask_for_a_review(world: World) -> None:
    count(world, ControlEventKind.SERIALIZATION_RETRY, 20)
    assert triggered(now(world))["serialization"].startswith("All actions together had 20 in 24 h")


def test_an_unknown_outcome_asks_for_a_review_once_it_is_older_than_its_tools_objective(world: World) -> None:
    grant = worlds.claimed(world, lease=worlds.LAPSED)
    assert (now(world).unknowns.count, now(world).unknowns.beyond) == (1, 0)
    with worlds.triggers_off():
        Attempt.objects.filter(operation_id=grant.order_id).update(started_at=F("started_at") - HOUR)
    assert triggered(now(world)) == {
        "unknown": "1 is older than the tool’s objective; the oldest is 60 min old."
    }
    worlds.recorded(worlds.take_over()[0], worker="worker-b")
    assert triggered(now(world)) == {}
    assert now(world).unknowns.count == 0


def test_what_never_left_a_workers_hands_is_not_unknown(world: World) -> None:
    worlds.recorded(worlds.claimed(world), AttemptOutcome.NOT_SENT, wait=60.0)
    found = now(world)
    assert (found.unknown.count, found.exposure) == (0, {"EUR": 125_000})


@pytest.mark.parametrize("close", [False, True])
def test_any_identity_with_more_than_one_effect_asks_for_a_review(world: World, close: bool) -> None:
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    Reconciliation.objects.create(
        tenant=world.tenant, tool=tool, since=Now(), until=Now(), effects=7, operations=7, ended_at=Now()
    )
    found = now(world)
    assert (found.identity.largest, found.identity.seen, triggered(found)) == (1, 7, {})

    worlds.open_finding(world, worlds.proposed(world))
    if close:
        Finding.objects.update(closed_at=Now(), closed_by="person:Olga Demo")

    found = now(world)
    assert found.identity.largest == found.effects.count == found.effects.course[-1] == 2
    assert triggered(found) == {"effects": "1 identity has more than one effect."}


def test_the_number_of_effects_is_the_one_the_finding_tells(world: World) -> None:
    findings.open_finding(
        tenant_id=world.tenant.pk, kind=FindingKind.TWICE, about="k", subject=None, order_id=None, effects=3
    )
    assert now(world).identity.largest == 3


def test_what_is_due_and_whose_lease_is_over_are_told_with_their_age(world: World) -> None:
    grant = worlds.claimed(world, "1843", target="order:2", lease=worlds.LAPSED)
    waiting = worlds.operation(worlds.approved(world, "1844", target="order:3"))
    worlds.approved(world, "1845", target="order:4")
    found = now(world)
    assert (found.oldest_due, found.oldest_lapsed) == (waiting.due_at, worlds.operation(grant).due_at)


def test_a_look_that_nobody_makes_any_more_is_late() -> None:
    sweeps.note("claim", 3)
    sweeps.note("prune", 0)
    assert [(each.name, each.found, each.late) for each in looks.looks()] == [
        ("claim", 3, False),
        ("prune", 0, False),
    ]
    Sweep.objects.update(ran_at=Now() - timedelta(minutes=2))
    assert [each.name for each in looks.late_looks()] == ["claim"]
