"""Money as integers of the currency's minor unit (ISO 4217); never a float."""

import re

from iso4217 import Currency


class UnknownCurrency(ValueError):
    """The currency is not an ISO 4217 code in capital letters, such as EUR."""


class MalformedAmount(ValueError):
    """The amount is not written as digits, such as 1,250.00 or 1250."""


def digits(currency: str) -> int:
    """How many decimal places the currency has: 2 for EUR, 0 for JPY, 3 for KWD. Raises UnknownCurrency."""
    try:
        exponent = Currency(currency).exponent
    except ValueError:
        exponent = None
    if exponent is None:  # precious metals and test codes are in the table, but are not money one pays in
        raise UnknownCurrency(UnknownCurrency.__doc__)
    return int(exponent)


def format_amount(amount_minor: int, currency: str) -> str:
    """The amount as people write it, without the code: 125000, "EUR" → "1,250.00"."""
    places = digits(currency)
    sign, magnitude = ("-", -amount_minor) if amount_minor < 0 else ("", amount_minor)
    whole, fraction = divmod(magnitude, 10**places)
    return f"{sign}{whole:,}" + (f".{fraction:0{places}d}" if places else "")


def format_money(amount_minor: int, currency: str) -> str:
    """The amount with its code: "1,250.00 EUR"."""
    return f"{format_amount(amount_minor, currency)} {currency}"


# Whole part plain or grouped as displayed, then a point and decimals; ASCII only, where int() takes more.
_AMOUNT = re.compile(r"(?P<whole>0|[1-9][0-9]{0,2}(?:,[0-9]{3})+|[1-9][0-9]*)(?:\.(?P<fraction>[0-9]+))?")
_LONGEST_AMOUNT = 24  # characters; what a database bigint holds is shorter


def parse_amount(text: str, currency: str) -> int:
    """The minor units of an amount typed by a person: "1,250.00" or "1250", "EUR" → 125000.

    Nothing is guessed or rounded: ASCII digits, no sign, no spaces, thousands grouped by commas as ``format_amount``
    writes them or not at all, at most the currency's decimals. Raises MalformedAmount, UnknownCurrency.
    """
    places = digits(currency)
    amount = _AMOUNT.fullmatch(text) if len(text) <= _LONGEST_AMOUNT else None
    fraction = (amount["fraction"] or "") if amount else ""
    if amount is None or len(fraction) > places:
        raise MalformedAmount(MalformedAmount.__doc__)
    return int(amount["whole"].replace(",", "") + fraction.ljust(places, "0"))
