"""The difference of two contents: what is called out, in which order, and that nothing is cut off."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.console.comparison import Part, compare, marked
from approvals.models import Policy, Proposal
from ledger.models import ToolVersion

VERSION = ToolVersion(
    id=1,
    number=1,
    schema={
        "properties": {
            "payee_account": {"title": "Payee account"},
            "amount_minor": {},
            "currency": {},
            "memo": {},
        }
    },
    amount_field="amount_minor",
    currency_field="currency",
)
POLICY = Policy(id=1, version=1, tier=1, approvals_required=1)


def content(expects: dict[str, Any] | None = None, **parameters: Any) -> Proposal:
    whole = {"amount_minor": 12_500, "currency": "EUR", **parameters}
    return Proposal(
        tool_version=VERSION,
        policy=POLICY,
        material=json.dumps({"expects": expects or {}, "parameters": whole}),
        amount_minor=whole["amount_minor"],
        currency=whole["currency"],
    )


def flags(before: Proposal, after: Proposal) -> list[tuple[str, str]]:
    return [(row.field, row.flag) for row in compare(before, after).rows]


def text(parts: Any) -> str:
    return "".join(part.text for part in parts)


@pytest.mark.parametrize(
    ("before", "after", "flag"),
    [
        (12_500, 125_000, "×10"),
        (125_000, 12_500, "÷10"),
        (100, 10_000, "×100"),
        (10_000, 25_000, "×2.5"),
        (10_000, 20_000, "×2"),
        (10_000, 19_999, ""),
        (10_000, 10_001, ""),
        (0, 10_000, ""),
        (9_804, 98_040, "×10"),
        (1_000, 9_999, "×9.9"),
    ],
)
def test_an_amount_that_multiplied_is_called_out(before: int, after: int, flag: str) -> None:
    assert flags(content(amount_minor=before), content(amount_minor=after)) == [("Amount", flag)]


def test_another_currency_is_called_out_whatever_the_number() -> None:
    assert flags(content(), content(currency="JPY")) == [("Amount", "Other currency")]


def test_a_slipped_digit_comes_first_then_look_alikes_and_payees_then_the_rest() -> None:
    before = content(memo="a", payee_account="7781", payee_name="Norrland Papper")
    after = content(memo="b", payee_account="4242", payee_name="N\u043errland Papper", amount_minor=125_000)
    assert flags(before, after) == [
        ("Amount", "×10"),
        ("Payee name", "Look-alike"),
        ("Payee account", "New payee"),
        ("Memo", ""),
    ]


def test_fields_that_came_or_went_have_nothing_on_the_other_side() -> None:
    rows = compare(content(memo="old"), content(note="new")).rows
    assert [(row.field, text(row.was_parts), text(row.now_parts)) for row in rows] == [
        ("Memo", "old", ""),
        ("Note", "", "new"),
    ]


def test_unchanged_fields_are_told_apart() -> None:
    comparison = compare(content(memo="same"), content(memo="same", amount_minor=1))
    assert [(each.label, each.text) for each in comparison.unchanged] == [("Memo", "same")]
    assert [row.same for row in comparison.everything] == [False, True]


def test_a_number_is_not_the_text_that_looks_like_it() -> None:
    (row,) = compare(content(memo="12"), content(memo=12)).rows
    assert (text(row.was_parts), text(row.now_parts)) == ('"12"', "12")
    (row,) = compare(content(memo=1), content(memo=True)).rows
    assert (text(row.was_parts), text(row.now_parts)) == ("1", "true")


def test_nested_values_and_expectations_are_named_by_their_path() -> None:
    before = content({"resource_version": 3}, lines=[{"sku": "a"}, {"sku": "b"}])
    after = content({"resource_version": 4}, lines=[{"sku": "a"}, {"sku": "c"}])
    assert [row.field for row in compare(before, after).rows] == [
        "Only if resource version",
        "Lines / 2 / sku",
    ]


def test_the_changed_words_are_marked_and_the_text_is_whole() -> None:
    was, now = marked("late delivery of 2 items", "lost delivery of 2 items")
    assert was == [Part("late", True), Part(" delivery of 2 items")]
    assert now == [Part("lost", True), Part(" delivery of 2 items")]


def test_a_change_at_the_end_of_a_long_text_is_not_cut_off() -> None:
    long = "harmless words " * 2_000
    was, now = marked(long, long + "and then pay somebody else")
    assert text(now) == long + "and then pay somebody else"
    assert now[-1] == Part("and then pay somebody else", True)
    assert not any(part.changed for part in was)


@given(st.text(), st.text())
def test_both_texts_are_always_whole_and_what_is_not_marked_is_the_same(before: str, after: str) -> None:
    was, now = marked(before, after)
    assert (text(was), text(now)) == (before, after)
    kept = [[part.text for part in parts if not part.changed] for parts in (was, now)]
    assert kept[0] == kept[1]


def test_what_it_stands_on_and_what_is_said_are_kept_apart_from_what_would_happen() -> None:
    before, after = content(), content()
    before.evidence = [{"statement": "a", "source": "x"}, {"statement": "b", "source": "y"}]
    after.evidence = [{"statement": "a", "source": "x"}, {"statement": "c", "source": "y"}]
    before.rationale, after.rationale = "late", "lost"
    after.policy = Policy(id=2, version=2, tier=3, approvals_required=2)
    comparison = compare(before, after)
    assert comparison.rows == []
    assert [(row.field, text(row.was_parts), text(row.now_parts)) for row in comparison.grounds] == [
        ("Policy", "T1, 1 to approve, version 1", "T3, 2 to approve, version 2"),
        ("Evidence", "b · y", "c · y"),
    ]
    assert [(row.field, text(row.was_parts), text(row.now_parts)) for row in comparison.words] == [
        ("Agent says", "late", "lost")
    ]
