"""The two keys and the fingerprint, against the vectors of docs/protocol.md and computed a second way."""

import hashlib
import json
from uuid import UUID

import pytest
import rfc8785

from ledger.identity import action_key, canonical, fingerprint, idempotency_key, key

TENANT = UUID("6f1c0a52-3f0e-4b7a-9d55-1842a5c0ffee")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["claim-88213", "create_payment", "payee:SUP-2291", 1], "066b0eba88c1013dd138b4d1f8c16425caa41378"),
        (["a|b", "c", "t", 1], "84499df178f4d4020639ed4a32e086e63e17312a"),
        (["a", "b|c", "t", 1], "bd1c40b237868d8e9b480c1a78f37271362ca0b3"),
        (["Fäll-1", "zahlung", "Empfänger:Ü", 1], "16def174d2bf6b96e59861fbb1ca251ddca74d81"),
    ],
)
def test_a_key_is_the_first_forty_digits_over_the_fields_as_one_array(
    fields: list[str | int], expected: str
) -> None:
    assert key(fields) == expected
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    assert key(fields) == hashlib.sha256(text).hexdigest()[:40]


def test_the_action_key_of_the_worked_example() -> None:
    assert (
        action_key(tenant=TENANT, reference="1842", action="refund", target="order:88213", step=1)
        == "8cacf0d228544a7a24ed04c3bd448547535be36d"
    )


def test_the_idempotency_key_adds_the_approved_revision() -> None:
    facts = {"tenant": TENANT, "reference": "1842", "action": "refund", "target": "order:88213", "step": 1}
    assert idempotency_key(**facts, approved_revision=7) == "0930f052aaba4b33b4b217d37849dd9fea6b321e"  # type: ignore[arg-type]
    assert idempotency_key(**facts, approved_revision=8) != idempotency_key(**facts, approved_revision=7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": UUID(int=1)},
        {"reference": "1843"},
        {"action": "refund_high"},
        {"target": "order:88214"},
        {"step": 2},
    ],
)
def test_each_fact_makes_another_action(other: dict[str, object]) -> None:
    facts = {"tenant": TENANT, "reference": "1842", "action": "refund", "target": "order:88213", "step": 1}
    assert action_key(**facts) != action_key(**{**facts, **other})  # type: ignore[arg-type]


def test_the_fingerprint_of_the_worked_example() -> None:
    parameters = {"amount_minor": 125000, "currency": "EUR", "payment": "ch_1842"}
    assert (
        fingerprint(parameters=parameters, expects={})
        == "31fd4fee42af853dfcebf03a3fe5962b638461813d21ee1bd9307a88a2f884cd"
    )


def test_the_order_of_members_is_no_content() -> None:
    assert fingerprint(parameters={"a": 1, "b": 2}, expects={}) == fingerprint(
        parameters={"b": 2, "a": 1}, expects={}
    )


@pytest.mark.parametrize("other", [2, "1", True, None, [1], {"n": 1}])
def test_another_value_is_another_content(other: object) -> None:
    assert fingerprint(parameters={"n": 1}, expects={}) != fingerprint(parameters={"n": other}, expects={})


def test_what_is_expected_is_part_of_the_content() -> None:
    assert fingerprint(parameters={"n": 1}, expects={}) != fingerprint(
        parameters={"n": 1}, expects={"resource_version": 0}
    )
    assert fingerprint(parameters={"n": 1}, expects={}) != fingerprint(parameters={}, expects={"n": 1})


def test_canonical_text_orders_members_by_utf_16_and_never_normalises_a_string() -> None:
    assert canonical({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'
    assert canonical("e\u0301") != canonical("é")


@pytest.mark.parametrize("inexact", [2**53, -(2**53), float("nan"), float("inf")])
def test_what_json_cannot_carry_exactly_has_no_canonical_text(inexact: float) -> None:
    with pytest.raises(rfc8785.CanonicalizationError):
        canonical({"n": inexact})
