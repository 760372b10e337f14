"""Idempotency keys: what Stripe's "Idempotent requests" promises, and what it does not."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import stripe

from tests.sandbox.conftest import SandboxProcess, eventually


def test_a_repeat_is_answered_from_storage_to_the_byte(sandbox_process: SandboxProcess, charge: str) -> None:
    first = sandbox_process.create(charge=charge, key=f"key-{charge}")
    repeat = sandbox_process.create(charge=charge, key=f"key-{charge}")
    assert (first.status_code, "Idempotent-Replayed" in first.headers) == (200, False)
    assert (repeat.status_code, repeat.content) == (200, first.content)
    assert repeat.headers["Idempotent-Replayed"] == "true"
    assert repeat.headers["Original-Request"] == first.headers["Request-Id"] != repeat.headers["Request-Id"]
    assert len(sandbox_process.effects(charge=charge)) == 1


def test_without_a_key_every_send_executes(sandbox_process: SandboxProcess, charge: str) -> None:
    for _ in range(2):
        sandbox_process.create(charge=charge)
    assert len(sandbox_process.effects(charge=charge)) == 2


def test_a_reused_key_with_other_parameters_is_refused(sandbox_process: SandboxProcess, charge: str) -> None:
    sandbox_process.create(charge=charge, amount=100, key=f"key-{charge}")
    with pytest.raises(stripe.IdempotencyError) as refused:
        sandbox_process.refunds.create(
            {"charge": charge, "amount": 101}, {"idempotency_key": f"key-{charge}"}
        )
    assert refused.value.http_status == 400
    assert len(sandbox_process.effects(charge=charge)) == 1


def test_the_order_of_fields_is_not_a_difference(sandbox_process: SandboxProcess, charge: str) -> None:
    headers = {"Idempotency-Key": f"key-{charge}", "Content-Type": "application/x-www-form-urlencoded"}
    bodies = (f"charge={charge}&amount=5&metadata[a]=1", f"metadata%5Ba%5D=1&amount=5&charge={charge}")
    first, second = (
        sandbox_process.http.post("/v1/refunds", content=body, headers=headers) for body in bodies
    )
    assert (second.status_code, second.content) == (200, first.content)


def test_a_reused_key_on_another_path_is_refused(sandbox_process: SandboxProcess, charge: str) -> None:
    refund = sandbox_process.create(charge=charge, key=f"key-{charge}").json()["id"]
    with pytest.raises(stripe.IdempotencyError, match="same endpoint"):
        sandbox_process.refunds.cancel(refund, {}, {"idempotency_key": f"key-{charge}"})


def test_a_second_call_is_turned_away_while_the_first_is_under_way(
    sandbox_process: SandboxProcess, charge: str
) -> None:
    sandbox_process.order_fault("hang_before_commit", charge=charge)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(sandbox_process.create, charge=charge, key=f"key-{charge}")
        eventually(lambda: not sandbox_process.pending_faults(charge))
        second = sandbox_process.create(charge=charge, key=f"key-{charge}")
        mismatch = sandbox_process.create(charge=charge, amount=7, key=f"key-{charge}")
        assert sandbox_process.effects(charge=charge) == []
        sandbox_process.release()
        assert first.result().status_code == 200
    assert (second.status_code, second.json()["error"]["code"]) == (409, "idempotency_key_in_use")
    assert second.headers["Stripe-Should-Retry"] == "true"
    assert (mismatch.status_code, mismatch.json()["error"]["type"]) == (400, "idempotency_error")
    third = sandbox_process.create(charge=charge, key=f"key-{charge}")
    assert (third.status_code, third.headers["Idempotent-Replayed"]) == (200, "true")
    assert len(sandbox_process.effects(charge=charge)) == 1


def test_forty_calls_at_once_with_one_key_have_one_effect(
    sandbox_process: SandboxProcess, charge: str
) -> None:
    def send(_: int) -> httpx.Response:
        return sandbox_process.create(charge=charge, key=f"key-{charge}")

    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = list(pool.map(send, range(40)))
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert len({answer.content for answer in answers if answer.status_code == 200}) == 1
    assert len(sandbox_process.effects(charge=charge)) == 1


def test_what_fails_validation_is_not_kept(sandbox_process: SandboxProcess, charge: str) -> None:
    assert sandbox_process.create(charge=charge, amount="none", key=f"key-{charge}").status_code == 400
    assert sandbox_process.create(charge=charge, amount="12", key=f"key-{charge}").status_code == 200


@pytest.mark.parametrize(("key", "status"), [("k" * 255, 200), ("k" * 256, 400), ("", 400)])
def test_a_key_has_1_to_255_characters(
    sandbox_process: SandboxProcess, charge: str, key: str, status: int
) -> None:
    unique = charge + key[len(charge) :] if key else key
    assert sandbox_process.create(charge=charge, key=unique).status_code == status


def test_a_key_is_pruned_after_its_window_and_a_late_repeat_executes_again(
    start_sandbox: Callable[..., SandboxProcess], charge: str
) -> None:
    sandbox = start_sandbox("--key-window", "0.3")
    first = sandbox.create(charge=charge, key="late")
    repeat = sandbox.create(charge=charge, key="late")
    assert repeat.headers["Idempotent-Replayed"] == "true"
    eventually(lambda: sandbox.create(charge=charge, key="late").json() != first.json())
    assert [effect["idempotency_key"] for effect in sandbox.effects(charge=charge)] == ["late", "late"]


def test_a_pruned_key_may_come_with_other_parameters(
    start_sandbox: Callable[..., SandboxProcess], charge: str
) -> None:
    sandbox = start_sandbox("--key-window", "0")
    assert sandbox.create(charge=charge, amount=1, key="k").status_code == 200
    assert sandbox.create(charge=charge, amount=2, key="k").status_code == 200


def test_a_provider_that_ignores_keys_executes_every_send(
    start_sandbox: Callable[..., SandboxProcess], charge: str
) -> None:
    sandbox = start_sandbox("--ignore-keys")
    answers = [sandbox.create(charge=charge, key="same") for _ in range(3)]
    assert len({answer.json()["id"] for answer in answers}) == 3
    assert [effect["idempotency_key"] for effect in sandbox.effects()] == ["same"] * 3
