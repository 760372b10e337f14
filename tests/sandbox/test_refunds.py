"""Refunds as the official SDK sees them."""

import pytest
import stripe

from tests.sandbox.conftest import SandboxProcess


def test_the_sdk_creates_a_refund_and_finds_it_again(sandbox_process: SandboxProcess, charge: str) -> None:
    refund = sandbox_process.refunds.create(
        {
            "charge": charge,
            "amount": 1842,
            "currency": "eur",
            "reason": "duplicate",
            "metadata": {"case": "1842", "Grüße": "ß & = ü"},
        },
        {"idempotency_key": f"key-{charge}"},
    )
    assert (refund.object, refund.status, refund.amount, refund.currency) == (
        "refund",
        "succeeded",
        1842,
        "eur",
    )
    assert refund.metadata is not None
    assert refund.metadata.to_dict() == {"case": "1842", "Grüße": "ß & = ü"}
    assert refund.last_response is not None
    assert refund.last_response.idempotency_key == f"key-{charge}"
    assert (refund.last_response.request_id or "").startswith("req_")
    again = sandbox_process.refunds.retrieve(refund.id)
    assert again.to_dict() == refund.to_dict()
    assert [listed.id for listed in sandbox_process.refunds.list({"charge": charge})] == [refund.id]


def test_an_effect_is_told_with_its_key_and_what_was_asked(
    sandbox_process: SandboxProcess, charge: str
) -> None:
    refund = sandbox_process.refunds.create(
        {"charge": charge, "amount": 500, "metadata": {"case": "7"}}, {"idempotency_key": f"key-{charge}"}
    )
    (effect,) = sandbox_process.effects(charge=charge)
    created = effect.pop("created")
    assert effect == {
        "id": refund.id,
        "idempotency_key": f"key-{charge}",
        "kind": "refund",
        "parameters": {"charge": charge, "amount": 500, "metadata": {"case": "7"}},
    }
    assert created.endswith("Z")
    assert sandbox_process.effects(idempotency_key=f"key-{charge}")[0]["id"] == refund.id


def test_a_payment_intent_is_refunded_through_its_charge(
    sandbox_process: SandboxProcess, charge: str
) -> None:
    payment_intent = charge.replace("ch_", "pi_")
    refund = sandbox_process.refunds.create({"payment_intent": payment_intent, "amount": 100})
    assert (refund.payment_intent, refund.charge) == (payment_intent, charge)
    assert len(sandbox_process.page(payment_intent=payment_intent)["data"]) == 1
    assert len(sandbox_process.effects(charge=charge)) == 1


def test_a_charge_cannot_be_refunded_beyond_its_amount(sandbox_process: SandboxProcess, charge: str) -> None:
    everything_but_one = sandbox_process.create(charge=charge, amount=10**12 - 1)
    assert everything_but_one.status_code == 200
    too_much = sandbox_process.create(charge=charge, amount=2)
    assert (too_much.status_code, too_much.json()["error"]["param"]) == (400, "amount")
    rest = sandbox_process.refunds.create({"charge": charge})
    assert rest.amount == 1
    with pytest.raises(stripe.InvalidRequestError) as refused:
        sandbox_process.refunds.create({"charge": charge, "amount": 1})
    assert refused.value.code == "charge_already_refunded"
    assert len(sandbox_process.effects(charge=charge)) == 2
    seen = sandbox_process.http.get(f"/v1/charges/{charge}").json()
    assert (seen["refunded"], seen["amount_refunded"]) == (True, 10**12)


def test_a_charge_is_refunded_in_its_own_currency(sandbox_process: SandboxProcess, charge: str) -> None:
    assert sandbox_process.create(charge=charge, currency="EUR").json()["currency"] == "eur"
    assert sandbox_process.create(charge=charge).json()["currency"] == "eur"
    other = sandbox_process.create(charge=charge, currency="usd")
    assert (other.status_code, other.json()["error"]["param"]) == (400, "currency")
    assert len(sandbox_process.effects(charge=charge)) == 2


def test_an_empty_balance_refuses_and_the_refusal_is_kept(
    sandbox_process: SandboxProcess, charge: str
) -> None:
    poor = charge.replace("ch_", "ch_insufficient_")
    for _ in range(2):
        with pytest.raises(stripe.InvalidRequestError) as refused:
            sandbox_process.refunds.create({"charge": poor, "amount": 1}, {"idempotency_key": f"key-{poor}"})
        assert (refused.value.http_status, refused.value.code) == (400, "balance_insufficient")
    assert refused.value.headers is not None
    assert refused.value.headers["Idempotent-Replayed"] == "true"
    assert sandbox_process.effects(charge=poor) == []


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"amount": "1"}, "charge", "parameter_missing"),
        ({"charge": "", "amount": "1"}, "charge", "parameter_invalid_empty"),
        ({"charge": "ch_1", "payment_intent": "pi_1"}, "payment_intent", "parameters_exclusive"),
        ({"charge": "ch_1", "amount": "0"}, "amount", "parameter_invalid_integer"),
        ({"charge": "ch_1", "amount": "-1"}, "amount", "parameter_invalid_integer"),
        ({"charge": "ch_1", "amount": "12.00"}, "amount", "parameter_invalid_integer"),
        ({"charge": "ch_1", "amount": "1_0"}, "amount", "parameter_invalid_integer"),
        ({"charge": "ch_1", "amount": "١٢"}, "amount", "parameter_invalid_integer"),
        ({"charge": "ch_1", "amount": "9" * 40}, "amount", "parameter_invalid_integer"),
        ({"charge": "ch_1", "currency": "euro"}, "currency", None),
        ({"charge": "ch_1", "reason": "because"}, "reason", None),
        ({"charge": "ch_1", "amont": "1"}, "amont", "parameter_unknown"),
        ({"charge": "ch_1", "metadata": "flat"}, "metadata", None),
        ({"charge": "ch_1", "metadata[k]": "v" * 501}, "metadata[k]", None),
        ({"charge": "ch_1", **{f"metadata[{n}]": "v" for n in range(51)}}, "metadata", None),
    ],
)
def test_invalid_parameters_are_refused_in_stripes_shape(
    sandbox_process: SandboxProcess, fields: dict[str, str], param: str, code: str | None
) -> None:
    response = sandbox_process.http.post("/v1/refunds", data=fields)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert (error["param"], error.get("code")) == (param, code)


def test_an_unknown_refund_is_missing(sandbox_process: SandboxProcess) -> None:
    with pytest.raises(stripe.InvalidRequestError) as missing:
        sandbox_process.refunds.retrieve("re_nowhere")
    assert (missing.value.http_status, missing.value.code) == (404, "resource_missing")


# --- listing ---------------------------------------------------------------------------------------------


def test_the_list_is_newest_first_and_says_whether_there_is_more(
    sandbox_process: SandboxProcess, charge: str
) -> None:
    created = [sandbox_process.create(charge=charge).json()["id"] for _ in range(5)]
    first = sandbox_process.page(charge=charge, limit=3)
    assert ([refund["id"] for refund in first["data"]], first["has_more"]) == (created[:1:-1], True)
    rest = sandbox_process.page(charge=charge, limit=3, starting_after=created[2])
    assert ([refund["id"] for refund in rest["data"]], rest["has_more"]) == (created[1::-1], False)
    before = sandbox_process.page(charge=charge, limit=2, ending_before=created[0])
    assert ([refund["id"] for refund in before["data"]], before["has_more"]) == (created[2:0:-1], True)


def test_paging_neither_skips_nor_repeats_while_refunds_are_inserted(
    sandbox_process: SandboxProcess, charge: str
) -> None:
    before = [sandbox_process.create(charge=charge).json()["id"] for _ in range(9)]
    seen = []
    for refund in sandbox_process.refunds.list({"charge": charge, "limit": 2}).auto_paging_iter():
        seen.append(refund.id)
        sandbox_process.create(charge=charge)
    assert seen == before[::-1]


def test_the_list_can_be_narrowed_by_time(sandbox_process: SandboxProcess, charge: str) -> None:
    second = sandbox_process.create(charge=charge).json()["created"]

    def count(parameters: dict[str, int]) -> int:
        return len(sandbox_process.page(charge=charge, **parameters)["data"])

    assert count({"created": second}) == 1
    assert count({"created[gte]": second, "created[lte]": second}) == 1
    assert count({"created[gt]": second}) == 0
    assert count({"created[lt]": second}) == 0


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "limit=x",
        "starting_after=re_nowhere",
        "starting_after=re_1&ending_before=re_2",
        "created[around]=1",
        "colour=red",
    ],
)
def test_a_list_nobody_can_answer_is_refused(sandbox_process: SandboxProcess, query: str) -> None:
    response = sandbox_process.http.get(f"/v1/refunds?{query}")
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
