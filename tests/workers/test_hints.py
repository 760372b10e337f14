"""What a queue message says: a repeat and a contradiction are counted, and nothing is believed."""

from typing import Any

import pytest

from ledger.models import Attempt, Operation
from ledger.states import ControlEventKind
from tests.worlds import World, approved, claim, claimed, events, operation, recorded
from workers import hints


def hint_of(world: World) -> dict[str, str]:
    order = operation(approved(world)).order
    return {"key": order.key, "fingerprint": order.fingerprint}


def test_a_hint_about_what_waits_is_only_a_nudge(world: World) -> None:
    hints.observe([hint_of(world)], worker="worker-a")
    assert events() == []
    assert Operation.objects.get().state == "not_started"


@pytest.mark.parametrize("settled", [False, True])
def test_a_hint_about_what_has_begun_is_a_repeat(world: World, settled: bool) -> None:
    hint = hint_of(world)
    (grant,) = claim()
    if settled:
        recorded(grant)
    hints.observe([hint], worker="worker-b")
    (event,) = events()
    assert (event.kind, event.source, event.action) == (ControlEventKind.REPLAY, "queue:worker-b", "refund")
    assert (event.key, event.subject) == (grant.key, grant.subject)
    assert event.detail["found"] == ("committed" if settled else "started")
    assert Attempt.objects.count() == 1


def test_a_hint_with_another_fingerprint_is_a_conflict_and_changes_nothing(world: World) -> None:
    hint = hint_of(world)
    hints.observe([{**hint, "fingerprint": "0" * 64}], worker="worker-a")
    (event,) = events()
    assert event.kind == ControlEventKind.FINGERPRINT_CONFLICT
    assert Operation.objects.get().state == "not_started"
    assert len(claim()) == 1


def test_a_conflict_is_said_before_a_repeat(world: World) -> None:
    grant = claimed(world)
    hints.observe([{"key": grant.key, "fingerprint": "0" * 64}], worker="worker-b")
    assert [event.kind for event in events()] == [ControlEventKind.FINGERPRINT_CONFLICT]


@pytest.mark.parametrize(
    "forged",
    [
        None,
        7,
        "text",
        [],
        [None],
        ["text"],
        [[]],
        [{}],
        [{"key": None}],
        [{"key": 7}],
        [{"key": ["0" * 40]}],
        [{"key": "0" * 40}],
        [{"key": "0" * 41}],
        [{"key": "'; DROP TABLE ledger_order; --"}],
        [{"key": "\x00" * 40}],
        [{"key": "\ud83d" * 40}],
        [{"key": "0" * 40, "fingerprint": {"a": 1}}],
        {"key": "0" * 40},
    ],
    ids=repr,
)
def test_a_malformed_or_unknown_hint_is_passed_over(world: World, forged: Any) -> None:
    approved(world)
    hints.observe(forged, worker="worker-a")
    assert events() == []
    assert Operation.objects.get().state == "not_started"


def test_a_flood_of_hints_costs_one_message(world: World) -> None:
    hint = hint_of(world)
    claim()
    hints.observe([{"key": f"{number:040x}"} for number in range(100_000)] + [hint], worker="worker-a")
    assert events() == []
