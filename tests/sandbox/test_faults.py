"""Each fault by name: what the caller is told, what really happened, and what a repeat with the key meets."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import stripe

from tests.sandbox.conftest import SandboxProcess, eventually

DROPPED = None  # no answer at all


def outcome(send: Callable[[], httpx.Response]) -> int | None:
    try:
        return send().status_code
    except httpx.RemoteProtocolError:
        return DROPPED


@pytest.mark.parametrize(
    ("fault", "told", "effects", "told_again", "effects_at_last"),
    [
        ("drop_before_commit", DROPPED, 0, 200, 1),
        ("drop_after_commit", DROPPED, 1, 200, 1),
        ("error_before_commit", 500, 0, 500, 0),
        ("error_after_commit", 500, 1, 500, 1),
        ("decline", 402, 0, 402, 0),
        ("conflict", 409, 0, 200, 1),
        ("rate_limit", 429, 0, 200, 1),
    ],
)
def test_a_fault_strikes_once_and_its_effects_are_known(
    sandbox_process: SandboxProcess,
    charge: str,
    fault: str,
    told: int | None,
    effects: int,
    told_again: int,
    effects_at_last: int,
) -> None:
    def send() -> httpx.Response:
        return sandbox_process.create(charge=charge, key=f"key-{charge}")

    sandbox_process.order_fault(fault, charge=charge)
    assert outcome(send) == told
    assert len(sandbox_process.effects(charge=charge)) == effects
    assert outcome(send) == told_again
    assert len(sandbox_process.effects(charge=charge)) == effects_at_last
    arrivals = sandbox_process.requests(charge=charge)
    assert [arrival["status"] for arrival in arrivals] == [told, told_again]
    assert sandbox_process.pending_faults(charge) == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("drop_before_commit", stripe.APIConnectionError),
        ("drop_after_commit", stripe.APIConnectionError),
        ("error_before_commit", stripe.APIError),
        ("error_after_commit", stripe.APIError),
        ("decline", stripe.CardError),
        ("conflict", stripe.APIError),
        ("rate_limit", stripe.RateLimitError),
    ],
)
def test_the_sdk_names_each_fault_as_it_names_stripes(
    sandbox_process: SandboxProcess, charge: str, fault: str, error: type[stripe.StripeError]
) -> None:
    sandbox_process.order_fault(fault, charge=charge)
    with pytest.raises(error):
        sandbox_process.refunds.create({"charge": charge, "amount": 1})
    assert len(sandbox_process.requests(charge=charge)) == 1


def test_a_refusal_says_when_and_whether_to_come_back(sandbox_process: SandboxProcess, charge: str) -> None:
    for fault in ({"fault": "rate_limit", "seconds": 2.5}, {"fault": "conflict"}, {"fault": "decline"}):
        sandbox_process.order_fault(**fault, charge=charge)
    limited, conflict, declined = (sandbox_process.create(charge=charge) for _ in range(3))
    assert limited.headers["Retry-After"] == "3"
    assert conflict.json()["error"]["code"] == "idempotency_key_in_use"
    error = declined.json()["error"]
    assert (error["type"], error["code"], error["decline_code"]) == (
        "card_error",
        "card_declined",
        "insufficient_funds",
    )


def test_a_kept_500_is_replayed_as_such(sandbox_process: SandboxProcess, charge: str) -> None:
    sandbox_process.order_fault("error_after_commit", charge=charge)
    first, repeat = (sandbox_process.create(charge=charge, key=f"key-{charge}") for _ in range(2))
    assert (repeat.status_code, repeat.content) == (500, first.content)
    assert repeat.headers["Idempotent-Replayed"] == "true"
    assert repeat.headers["Stripe-Should-Retry"] == "false"


def test_a_hang_before_the_commit_delays_the_effect_and_holds_nobody_else(
    sandbox_process: SandboxProcess, charge: str
) -> None:
    sandbox_process.order_fault("hang_before_commit", charge=charge)
    with ThreadPoolExecutor() as pool:
        hanging = pool.submit(sandbox_process.create, charge=charge, key=f"key-{charge}")
        eventually(lambda: not sandbox_process.pending_faults(charge))
        assert sandbox_process.effects(charge=charge) == []
        assert sandbox_process.create(charge=f"{charge}_other").status_code == 200
        assert [arrival["status"] for arrival in sandbox_process.requests(charge=charge)] == [None]
        assert sandbox_process.release()["released"] == 1
        assert hanging.result().status_code == 200
    assert len(sandbox_process.effects(charge=charge)) == 1


def test_the_effect_comes_even_when_the_caller_did_not_wait(
    sandbox_process: SandboxProcess, charge: str
) -> None:
    sandbox_process.order_fault("hang_before_commit", charge=charge)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{sandbox_process.url}/v1/refunds",
            data={"charge": charge, "amount": "1"},
            headers={"Authorization": "Bearer sk_test_1"},
            timeout=0.2,
        )
    assert sandbox_process.effects(charge=charge) == []
    assert sandbox_process.release()["released"] == 1
    eventually(lambda: len(sandbox_process.effects(charge=charge)) == 1)


def test_a_hang_after_the_commit_delays_only_the_answer(sandbox_process: SandboxProcess, charge: str) -> None:
    sandbox_process.order_fault("hang_after_commit", charge=charge)
    with ThreadPoolExecutor() as pool:
        hanging = pool.submit(sandbox_process.create, charge=charge, key=f"key-{charge}")
        eventually(lambda: sandbox_process.effects(charge=charge))
        repeat = sandbox_process.create(charge=charge, key=f"key-{charge}")
        assert (repeat.status_code, repeat.headers["Idempotent-Replayed"]) == (200, "true")
        sandbox_process.release()
        assert hanging.result().content == repeat.content
    assert len(sandbox_process.effects(charge=charge)) == 1


def test_a_fault_strikes_as_often_as_it_was_told_to_and_replays_too(
    sandbox_process: SandboxProcess, charge: str
) -> None:
    sandbox_process.order_fault("drop_after_commit", charge=charge, times=2)
    told = [outcome(lambda: sandbox_process.create(charge=charge, key=f"key-{charge}")) for _ in range(3)]
    assert told == [DROPPED, DROPPED, 200]
    assert len(sandbox_process.effects(charge=charge)) == 1


def test_a_fault_for_one_charge_leaves_the_others_alone(sandbox_process: SandboxProcess, charge: str) -> None:
    sandbox_process.order_fault("decline", charge=charge, kind="refund")
    assert sandbox_process.create(charge=f"{charge}_other").status_code == 200
    assert sandbox_process.create(charge=charge).status_code == 402


def test_a_fault_for_any_charge_strikes_the_next_create(
    start_sandbox: Callable[..., SandboxProcess], charge: str
) -> None:
    sandbox = start_sandbox()
    sandbox.order_fault("decline")
    assert sandbox.create(charge=charge).status_code == 402
    assert sandbox.create(charge=charge).status_code == 200


def test_cleared_faults_strike_nobody(sandbox_process: SandboxProcess, charge: str) -> None:
    sandbox_process.order_fault("decline", charge=charge, times=5)
    assert sandbox_process.release() == {"cleared": 1, "released": 0}
    assert sandbox_process.create(charge=charge).status_code == 200


def test_a_lagging_list_hides_what_is_young_for_as_many_calls_as_told(
    sandbox_process: SandboxProcess, charge: str
) -> None:
    refund = sandbox_process.create(charge=charge).json()["id"]
    sandbox_process.order_fault("list_lag", charge=charge, times=2, seconds=60)
    lengths = [len(sandbox_process.page(charge=charge)["data"]) for _ in range(3)]
    assert lengths == [0, 0, 1]
    sandbox_process.order_fault("list_lag", charge=charge, seconds=60)
    assert sandbox_process.page(charge=charge)["data"] == []
    assert sandbox_process.refunds.retrieve(refund).id == refund


def test_a_lag_without_a_count_ends_with_its_time(sandbox_process: SandboxProcess, charge: str) -> None:
    sandbox_process.create(charge=charge)
    sandbox_process.order_fault("list_lag", charge=charge, seconds=0.2)
    eventually(lambda: sandbox_process.page(charge=charge)["data"])
    eventually(lambda: not sandbox_process.pending_faults(charge))


@pytest.mark.parametrize(("fault", "told"), [("error_list", 500), ("drop_list", DROPPED), ("hang_list", 200)])
def test_a_look_up_can_fail_too(
    sandbox_process: SandboxProcess, charge: str, fault: str, told: int | None
) -> None:
    sandbox_process.order_fault(fault, charge=charge, seconds=0.05)

    def look_up() -> httpx.Response:
        return sandbox_process.http.get("/v1/refunds", params={"charge": charge})

    assert outcome(look_up) == told
    assert outcome(look_up) == 200


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 60_000,
        b'{"fault": ["decline"]}',
        b'{"fault": "decline", "times": 0}',
        b'{"fault": "decline", "times": true}',
        b'{"fault": "decline", "seconds": NaN}',
        b'{"fault": "decline", "seconds": -1}',
        b'{"fault": "decline", "seconds": 1' + b"0" * 400 + b"}",
        b'{"fault": "decline", "\\ud800": 1}',
        b'{"fault": "decline", "kind": "letter"}',
        b'{"fault": "decline", "charge": 7}',
        b'{"fault": "decline", "sekonds": 7}',
    ],
)
def test_a_fault_nobody_can_read_is_refused(sandbox_process: SandboxProcess, content: bytes) -> None:
    assert sandbox_process.http.post("/_sandbox/faults", content=content).status_code == 400


def test_an_unknown_fault_is_answered_with_the_known_ones(sandbox_process: SandboxProcess) -> None:
    response = sandbox_process.http.post("/_sandbox/faults", json={"fault": "earthquake"})
    assert response.status_code == 400
    for name in ("drop_after_commit", "hang_before_commit", "list_lag"):
        assert name in response.json()["error"]["message"]
