"""Facts are made unambiguous before they are hashed: one spelling of an action, or a refusal that says where."""

import unicodedata
from typing import Any
from uuid import UUID

import pytest

from approvals.errors import InvalidContent
from approvals.proposals import Facts, facts

TENANT = UUID("6f1c0a52-3f0e-4b7a-9d55-1842a5c0ffee")


def made(**changes: Any) -> Facts:
    return facts(**{"reference": "1842", "action": "refund", "target": "order:88213", "step": 1, **changes})


def test_composed_and_decomposed_letters_are_one_fact() -> None:
    composed, decomposed = made(target="Empfänger:Ü"), made(target="Empfa\u0308nger:U\u0308")
    assert composed == decomposed
    assert composed.key(TENANT) == decomposed.key(TENANT)
    assert unicodedata.is_normalized("NFC", decomposed.target)


@pytest.mark.parametrize("around", [" {}", "{} ", "\t{}\n", "\u00a0{}\u3000", "\r\n{}\u2028"])
def test_space_around_a_fact_is_no_part_of_it(around: str) -> None:
    assert made(reference=around.format("1842")) == made()


def test_space_inside_and_case_are_part_of_it() -> None:
    assert made(reference="18 42") != made(reference="1842")
    assert made(reference="A1") != made(reference="a1")


def test_where_a_separator_stands_makes_another_action() -> None:
    first, second = made(reference="a|b", target="c"), made(reference="a", target="b|c")
    assert first.key(TENANT) != second.key(TENANT)


@pytest.mark.parametrize("fact", ["reference", "action", "target"])
@pytest.mark.parametrize(
    "invisible",
    [
        "\x00",
        "\u3164",
        "\u2800",
        "\ufe0f",
        "\n",
        "\x1b",
        "\x7f",
        "\u0085",
        "\u00ad",
        "\u200b",
        "\u200e",
        "\u202e",
        "\u2028",
        "\u2061",
        "\u2066",
        "\ufeff",
        "\ud83d",
        "\ue000",
        "\uffff",
        "\U000e0041",
    ],
    ids=lambda character: f"U+{ord(character):04X}",
)
def test_an_invisible_character_inside_a_fact_is_refused(fact: str, invisible: str) -> None:
    with pytest.raises(InvalidContent) as refusal:
        made(**{fact: f"or{invisible}der"})
    (fault,) = refusal.value.faults
    assert fault.pointer == f"/{fact}"
    assert f"U+{ord(invisible):04X}" in fault.detail


@pytest.mark.parametrize("empty", ["", " ", "\n\t", "\u3000"])
def test_an_empty_fact_is_refused(empty: str) -> None:
    with pytest.raises(InvalidContent) as refusal:
        made(reference=empty, target=empty)
    assert [fault.pointer for fault in refusal.value.faults] == ["/reference", "/target"]


@pytest.mark.parametrize(("fact", "most"), [("reference", 100), ("action", 50), ("target", 200)])
def test_a_fact_has_a_longest_length(fact: str, most: int) -> None:
    assert getattr(made(**{fact: "x" * most}), fact) == "x" * most
    with pytest.raises(InvalidContent) as refusal:
        made(**{fact: "x" * (most + 1)})
    assert [fault.pointer for fault in refusal.value.faults] == [f"/{fact}"]


@pytest.mark.parametrize("step", [0, -1, 2**31, True, 1.0, "1", None])
def test_a_step_is_a_whole_number_from_one(step: object) -> None:
    with pytest.raises(InvalidContent) as refusal:
        made(step=step)
    assert [fault.pointer for fault in refusal.value.faults] == ["/step"]


def test_steps_stand_side_by_side() -> None:
    assert made(step=1).key(TENANT) != made(step=2).key(TENANT)
    assert made(step=2**31 - 1).step == 2**31 - 1
