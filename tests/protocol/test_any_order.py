"""Every act of everybody in any order over all enforcement classes: no effect twice, no evidence lost.

Each run of the suite tries the same few orders. ``HYPOTHESIS_PROFILE=long`` tries many, other ones each time, for as
long as it takes; ``HYPOTHESIS_EXAMPLES`` and ``HYPOTHESIS_STEPS`` say how many and how long they are.

Steps commit, as they do in service: constraints that wait for the commit are checked, and what a budget counts is
claimed in its SERIALIZABLE transaction. One step is over before the next begins; two at the same moment are the matter
of tests/races. People say of an outcome what is true: nothing here keeps a person from saying what is not.
"""

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
from hypothesis.stateful import run_state_machine_as_test
from hypothesis.strategies import DataObject

from tests.protocol.machine import AnyOrder, Ground
from tests.protocol.peers import Weather, registered
from tests.worlds import new_world

AVAILABLE_PROVIDERS["every_example_anew"] = f"{__name__}.EveryExampleAnew"


class EveryExampleAnew(HypothesisProvider):
    """Hypothesis as it is, but for its habit of trying each example again with parts of it repeated.

    That is cheap where an example is; here it would be most of what a run of the suite has time for.
    """


LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
QUICK = settings(
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES") or (2000 if LONG else 12)),
    stateful_step_count=int(os.environ.get("HYPOTHESIS_STEPS") or (80 if LONG else 40)),
    derandomize=not LONG,
    backend="every_example_anew",
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def ground(transactional_db: None) -> Iterator[Ground]:
    made = Ground.laid(new_world())
    with registered(list(made.peers.values())):
        yield made


@pytest.mark.timeout(0 if LONG else 600)  # what fails is made shorter first, which takes its time
def test_in_any_order_nothing_happens_twice_and_no_evidence_is_lost(ground: Ground) -> None:
    search(ground, QUICK)


def search(ground: Ground, how: settings) -> None:
    machine = partial(AnyOrder, ground)
    run_state_machine_as_test(machine, settings=how)  # type: ignore[arg-type]  # any maker is taken, not a class alone


class Script(DataObject):
    """Draws what it is told to, in the place of Hypothesis."""

    def __init__(self, *values: Any) -> None:
        self._values = list(values)

    def draw(self, strategy: Any, label: Any = None) -> Any:
        return self._values.pop(0)


class Scripted(AnyOrder):
    """The same acts and invariants, in an order that a test says."""

    def begin(self, action: str) -> None:
        self.two_actions_are_approved((action, action))
        self.then()
        self.claims(Script(1), "a")
        self.then()

    def carry_out(self, weather: Weather, worker: str) -> None:
        self.carries_out(Script(self.held[0], weather, True), worker)
        self.then()
        self.records_all(Script(), worker)
        self.then()

    def take_over(self, worker: str) -> None:
        self.takes_over(Script(True, 1), worker)
        self.then()

    def arrive(self) -> None:
        self.a_late_request_arrives(Script(self._travelling()[0]))
        self.then()

    def then(self) -> None:
        self.time_stands_still()
        self.case_and_operation_agree()
        self.all_else_holds()


def _twice(of: Ground) -> None:
    """The first request arrives after the second, which a successor has sent with the same key."""
    machine = Scripted(of)
    machine.begin("provider")
    machine.carry_out(Weather.DELAYED, "a")
    machine.take_over("b")
    machine.carry_out(Weather.FINE, "b")
    machine.arrive()


def _after_the_end(of: Ground) -> None:
    """The first request arrives after a successor's was refused for good."""
    machine = Scripted(of)
    machine.begin("owned")
    machine.carry_out(Weather.DELAYED, "a")
    machine.take_over("b")
    machine.carry_out(Weather.REFUSES, "b")
    machine.arrive()


def test_a_sink_that_keeps_its_word_passes(ground: Ground) -> None:
    _twice(ground)
    ground.clear()
    _after_the_end(ground)


def test_a_provider_that_ignores_keys_is_found_out(ground: Ground) -> None:
    ground.peers["provider"].ignores_keys = True  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="more than one effect by idempotency key"):
        _twice(ground)


def test_a_database_that_ignores_its_fence_is_found_out(ground: Ground) -> None:
    ground.peers["owned"].ignores_fence = True  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="said to have failed, and happened"):
        _after_the_end(ground)


if LONG:

    @pytest.mark.timeout(600)
    def test_the_search_by_itself_finds_a_provider_that_ignores_keys(ground: Ground) -> None:
        ground.peers["provider"].ignores_keys = True  # type: ignore[attr-defined]
        how = settings(QUICK, max_examples=300, derandomize=True, phases=[Phase.generate])
        with pytest.raises(AssertionError, match="more than one effect by idempotency key"):
            search(ground, how)
