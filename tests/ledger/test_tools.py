"""Write tools: what they accept, how an action reads, and the request that is frozen from it."""

from typing import Any

import pytest

from config.demo import seed
from ledger import schemas
from ledger.models import Tool, ToolVersion
from ledger.money import UnknownCurrency, digits, format_amount, format_money
from ledger.tools import UnknownTool, current_version, faults, render
from tests.worlds import World, new_world

FACTS: dict[str, str | int] = {"reference": "1842", "action": "refund", "target": "order:88213", "step": 1}


def refund(**changes: Any) -> dict[str, Any]:
    return {"payment": "ch_1842", "amount_minor": 125_000, "currency": "EUR", **changes}


def tool(world: World, **changes: Any) -> ToolVersion:
    """As an older release may have stored it: nothing here was checked when it was published."""
    made = Tool.objects.create(tenant=world.tenant, name="other")
    return ToolVersion.objects.create(tool=made, number=1, **{**seed.REFUND, **changes})


# Money.


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        (125_000, "EUR", "1,250.00"),
        (1, "EUR", "0.01"),
        (0, "EUR", "0.00"),
        (-98_04, "GBP", "-98.04"),
        (-1, "EUR", "-0.01"),
        (500, "JPY", "500"),
        (1234, "KWD", "1.234"),
        (123_456_789_012_345_678, "USD", "1,234,567,890,123,456.78"),
    ],
)
def test_minor_units_are_shown_as_people_write_them(amount: int, currency: str, shown: str) -> None:
    assert format_amount(amount, currency) == shown
    assert format_money(amount, currency) == f"{shown} {currency}"


@pytest.mark.parametrize("code", ["eur", "EURO", "", "USÐ", "XXX", "XTS", "XAU", "978"])
def test_what_nobody_pays_in_is_no_currency(code: str) -> None:
    with pytest.raises(UnknownCurrency):
        digits(code)


# Finding one.


def test_the_newest_version_counts(world: World) -> None:
    first = current_version(tenant_id=world.tenant.pk, name="refund")
    second = ToolVersion.objects.create(tool=first.tool, number=2, **{**seed.REFUND, "title": "Refund, anew"})
    assert current_version(tenant_id=world.tenant.pk, name="refund") == second


def test_a_tool_of_another_organisation_is_unknown(world: World) -> None:
    tool(other := new_world())
    assert current_version(tenant_id=other.tenant.pk, name="other")
    with pytest.raises(UnknownTool):
        current_version(tenant_id=world.tenant.pk, name="other")


def test_a_tool_without_a_version_can_do_nothing(world: World) -> None:
    Tool.objects.create(tenant=world.tenant, name="empty")
    with pytest.raises(UnknownTool):
        current_version(tenant_id=world.tenant.pk, name="empty")


# What is accepted.


@pytest.mark.parametrize("amount", [1250.0, 1e3])
def test_an_amount_written_as_a_fraction_is_refused_though_the_schema_takes_it(
    world: World, amount: float
) -> None:
    (fault,) = faults(tool(world), refund(amount_minor=amount))
    assert fault.pointer == "/parameters/amount_minor"


def test_every_fault_is_named_with_its_place(world: World) -> None:
    found = faults(tool(world), {"payment": "x", "amount_minor": "1", "currency": "EUR"})
    assert {fault.pointer for fault in found} == {"/parameters/payment", "/parameters/amount_minor"}


def test_a_place_is_a_json_pointer() -> None:
    assert schemas.pointer("parameters", "a/b~c", 0) == "/parameters/a~1b~0c/0"


def test_a_tool_without_limits_moves_any_amount(world: World) -> None:
    assert faults(tool(world, value_limits={}), refund(amount_minor=100_000_000)) == []


def test_a_currency_without_a_limit_is_not_moved_by_a_tool_that_has_limits(world: World) -> None:
    (fault,) = faults(tool(world, value_limits={"EUR": 1}), refund(currency="USD", amount_minor=1))
    assert "no value limit for USD" in fault.detail


def test_a_schema_that_points_elsewhere_fetches_nothing(world: World) -> None:
    version = tool(world, schema={"$ref": "http://127.0.0.1:1/schema.json"})
    with pytest.raises(Exception, match="Unresolvable"):
        faults(version, refund())


# How it reads, and what is sent.


def test_the_sentence_shows_the_money_and_the_order_carries_minor_units(world: World) -> None:
    rendered = render(tool(world), facts=FACTS, parameters=refund(currency="JPY", amount_minor=500))
    assert rendered.sentence == "Refund 500 JPY on ch_1842"
    assert rendered.body == '{"amount":500,"charge":"ch_1842","currency":"JPY"}'
    assert (rendered.amount_minor, rendered.currency) == (500, "JPY")
    assert rendered.resource == "order:88213"


def test_a_template_alone_keeps_the_type_of_its_value_and_drops_what_is_absent(world: World) -> None:
    order = {"whole": "{amount_minor}", "part": "no {amount_minor}", "list": ["{step}"], "gone": "{nothing}"}
    body = render(tool(world, order=order), facts=FACTS, parameters=refund()).body
    assert body == '{"list":[1],"part":"no 125000","whole":125000}'


def test_words_of_the_agent_are_never_a_template(world: World) -> None:
    version = tool(world, sentence="Refund on {payment}", order={"charge": "{payment}"})
    rendered = render(version, facts=FACTS, parameters=refund(payment="{target} {0} {payment.__class__}"))
    assert rendered.sentence == "Refund on {target} {0} {payment.__class__}"
    assert rendered.body == '{"charge":"{target} {0} {payment.__class__}"}'


@pytest.mark.parametrize("template", ["{payment.__class__}", "{payment[0]}", "{0}"])
def test_a_template_reaches_nothing_but_members(world: World, template: str) -> None:
    with pytest.raises(ValueError, match="names a member"):
        render(tool(world, sentence=template), facts=FACTS, parameters=refund())


def test_a_fact_is_not_overruled_by_a_parameter_of_its_name(world: World) -> None:
    version = tool(world, sentence="{target}", order={"target": "{target}"})
    rendered = render(version, facts=FACTS, parameters=refund(target="order:other"))
    assert (rendered.sentence, rendered.resource) == ("order:88213", "order:88213")
