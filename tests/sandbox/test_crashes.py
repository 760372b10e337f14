"""SIGKILL at the worst moments: an effect and the answer kept for it are there together, or neither is."""

import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.sandbox.conftest import SandboxProcess, eventually


def test_killed_between_commit_and_answer_it_keeps_the_effect_and_the_answer(
    start_sandbox: Callable[..., SandboxProcess], charge: str
) -> None:
    sandbox = start_sandbox()
    sandbox.order_fault("hang_after_commit", charge=charge)
    with ThreadPoolExecutor() as pool:
        lost = pool.submit(sandbox.create, charge=charge, key="k")
        eventually(lambda: sandbox.effects(charge=charge))
        (effect,) = sandbox.effects(charge=charge)
        sandbox.end(signal.SIGKILL)
        assert isinstance(lost.exception(), httpx.TransportError)
    restarted = start_sandbox(port=sandbox.port)
    assert restarted.effects() == [effect]
    assert [arrival["status"] for arrival in restarted.requests(charge=charge)] == [None]
    repeat = restarted.create(charge=charge, key="k")
    assert (repeat.status_code, repeat.json()["id"]) == (200, effect["id"])
    assert repeat.headers["Idempotent-Replayed"] == "true"
    assert len(restarted.effects()) == 1


def test_killed_before_the_commit_it_has_done_nothing_and_the_key_is_free(
    start_sandbox: Callable[..., SandboxProcess], charge: str
) -> None:
    sandbox = start_sandbox()
    sandbox.order_fault("hang_before_commit", charge=charge)
    with ThreadPoolExecutor() as pool:
        lost = pool.submit(sandbox.create, charge=charge, key="k")
        eventually(lambda: not sandbox.pending_faults(charge))
        sandbox.end(signal.SIGKILL)
        assert isinstance(lost.exception(), httpx.TransportError)
    restarted = start_sandbox()
    assert restarted.effects() == []
    assert len(restarted.requests(charge=charge)) == 1
    assert restarted.create(charge=charge, key="k").status_code == 200
    assert len(restarted.effects()) == 1


def test_killed_in_full_flight_it_loses_no_answer_and_repeats_no_effect(
    start_sandbox: Callable[..., SandboxProcess], charge: str
) -> None:
    sandbox = start_sandbox()
    answered: dict[str, bytes] = {}

    def send_until_it_dies(sender: int) -> None:
        for number in range(100_000):
            key = f"{sender}-{number}"
            try:
                answered[key] = sandbox.create(charge=f"{charge}_{key}", key=key).content
            except httpx.TransportError:
                return

    with ThreadPoolExecutor(max_workers=4) as pool:
        senders = [pool.submit(send_until_it_dies, sender) for sender in range(4)]
        eventually(lambda: len(answered) > 100)
        sandbox.process.kill()
        for sender in senders:
            sender.result()
    restarted = start_sandbox()
    happened = Counter(effect["idempotency_key"] for effect in restarted.effects())
    assert set(happened.values()) == {1}
    assert set(answered) <= set(happened)
    for key in happened:
        repeat = restarted.create(charge=f"{charge}_{key}", key=key)
        assert repeat.headers["Idempotent-Replayed"] == "true"
        assert repeat.content == answered.get(key, repeat.content)
    assert len(restarted.effects()) == len(happened)


def test_sigterm_ends_it_cleanly_even_with_a_request_hanging(
    start_sandbox: Callable[..., SandboxProcess], charge: str
) -> None:
    sandbox = start_sandbox()
    sandbox.order_fault("hang_before_commit", charge=charge)
    with ThreadPoolExecutor() as pool:
        lost = pool.submit(sandbox.create, charge=charge, key="k")
        eventually(lambda: not sandbox.pending_faults(charge))
        assert sandbox.end(signal.SIGTERM) == 0
        assert isinstance(lost.exception(), httpx.TransportError)
    assert start_sandbox().effects() == []


def test_a_database_in_use_is_not_shared(start_sandbox: Callable[..., SandboxProcess]) -> None:
    start_sandbox()
    with pytest.raises(AssertionError, match="cannot start: database is locked"):
        start_sandbox()
