"""Amounts as people type them: read to the minor unit, or refused; never rounded, never guessed."""

import pytest

from ledger.money import MalformedAmount, UnknownCurrency, format_amount, parse_amount


@pytest.mark.parametrize(
    ("text", "currency", "minor"),
    [
        ("1250.00", "EUR", 125_000),
        ("1,250.00", "EUR", 125_000),
        ("1250", "EUR", 125_000),
        ("1250.5", "EUR", 125_050),
        ("0.50", "EUR", 50),
        ("1,234,567.89", "USD", 123_456_789),
        ("500", "JPY", 500),
        ("50,000", "JPY", 50_000),
        ("1.234", "KWD", 1_234),
        ("0", "EUR", 0),
    ],
)
def test_an_amount_is_read_to_the_minor_unit_of_its_currency(text: str, currency: str, minor: int) -> None:
    assert parse_amount(text, currency) == minor


@pytest.mark.parametrize(
    ("text", "currency"),
    [
        ("１２.00", "EUR"),
        ("١٢", "EUR"),
        ("1_000", "EUR"),
        ("-0.00", "EUR"),
        ("+1", "EUR"),
        (" 1.00 ", "EUR"),
        ("1.00\n", "EUR"),
        ("1,25.00", "EUR"),
        ("1250,00", "EUR"),
        ("1.250,00", "EUR"),
        ("12,50.000", "EUR"),
        ("0,250.00", "EUR"),
        ("01250.00", "EUR"),
        (".50", "EUR"),
        ("1.", "EUR"),
        ("1e3", "EUR"),
        ("", "EUR"),
        ("1.005", "EUR"),
        ("500.50", "JPY"),
        ("500.0", "JPY"),
        ("1.2345", "KWD"),
        ("9" * 5000, "EUR"),
    ],
)
def test_an_amount_that_is_not_written_exactly_is_refused(text: str, currency: str) -> None:
    with pytest.raises(MalformedAmount):
        parse_amount(text, currency)


@pytest.mark.parametrize("currency", ["usd", "USÐ", "XXX", "XAU", "", "EURO"])
def test_an_amount_in_no_currency_is_refused(currency: str) -> None:
    with pytest.raises(UnknownCurrency):
        parse_amount("1.00", currency)


@pytest.mark.parametrize(
    ("minor", "currency"), [(125_000, "EUR"), (1, "EUR"), (500, "JPY"), (1_234_567, "KWD")]
)
def test_what_the_page_shows_can_be_typed_as_it_stands(minor: int, currency: str) -> None:
    assert parse_amount(format_amount(minor, currency), currency) == minor
