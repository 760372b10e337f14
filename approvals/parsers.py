"""Reading request bodies: I-JSON (RFC 7493) and nothing looser, so that one payload has one fingerprint.

Python's own reader keeps the last of two equal names, takes NaN, rounds what a double cannot hold, passes on lone
surrogates and U+0000 (which PostgreSQL refuses) and dies of deep nesting. Each is refused here, before anything else.
"""

import json
import re
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from io import BytesIO
from itertools import accumulate
from typing import IO, Any, NoReturn

from django.http import HttpRequest
from rest_framework.parsers import BaseParser

from approvals.api.errors import BodyTooLarge, InvalidRequest, MalformedBody
from ledger.schemas import Fault, pointer

MOST_BYTES = 262_144
MOST_DEPTH = 32
MOST_DIGITS = 4300
"""What Python converts at once; a longer integer is refused rather than costing quadratic time."""
MOST_EXACT = 2**53 - 1
"""The largest integer every JSON reader holds exactly (RFC 7493, 2.2)."""


class StrictJSONParser(BaseParser):
    """``application/json`` in UTF-8, read by the rules of this module."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The body's value. Raises BodyTooLarge, MalformedBody, InvalidRequest (numbers JSON cannot carry exactly)."""
        body: bytes = stream.read(MOST_BYTES + 1)  # whatever length was announced
        if len(body) > MOST_BYTES:
            raise BodyTooLarge
        if len(body) < _announced(parser_context or {}):
            raise MalformedBody("The body ended before its announced length.")
        return parse(body)


def _announced(context: Mapping[str, Any]) -> int:
    return int(context["request"].META.get("CONTENT_LENGTH") or 0) if "request" in context else 0


def measure_chunked(request: HttpRequest) -> None:
    """Gives a chunked request the length it does not announce; Django would take its body for empty.

    Only where the server says that it ends the stream itself (``wsgi.input_terminated``, as gunicorn does).
    """
    if "CONTENT_LENGTH" in request.META or not request.META.get("wsgi.input_terminated"):
        return
    if request.META.get("HTTP_TRANSFER_ENCODING"):
        try:
            body = request.META["wsgi.input"].read(MOST_BYTES + 1)
        except Exception:  # noqa: BLE001  each server has its own words for a chunk that is none
            raise MalformedBody("The chunked body is not well-formed.") from None
        request.META["CONTENT_LENGTH"] = str(len(body))
        request._stream = BytesIO(body)  # noqa: SLF001  where Django reads from


def parse(body: bytes) -> Any:
    """The JSON value of the bytes; integral floats are integers, so that 1, 1.0 and 1e0 are one number."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedBody("The body is not UTF-8.") from None
    if _depth(body) > MOST_DEPTH:
        raise MalformedBody(f"The body is nested more than {MOST_DEPTH} levels deep.")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise MalformedBody(f"The body is not JSON: {error}.") from None
    faults: list[Fault] = []
    _check(value, faults, [])
    if faults:
        raise InvalidRequest(faults)
    return value


# Possessive, and an unclosed string runs to the end: one pass, whatever it is given.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = b"[]{}"
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def _depth(body: bytes) -> int:
    """How deep the brackets outside of strings go, without recursion: judged before the recursive reader runs."""
    brackets = _STRING.sub(b"", body).translate(None, delete=_NOT_BRACKETS)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


_NOT_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ, also once they are normalised: two readers must not see two payloads."""
    names: set[str] = set()
    for name, _value in members:
        _refuse_unstorable(name)
        normal = unicodedata.normalize("NFC", name)
        if normal in names:
            raise MalformedBody(f"The member name {json.dumps(normal)} appears twice in one object.")
        names.add(normal)
    return dict(members)


class _Inexact(str):
    """The literal of a number that a double does not hold; found again by ``_check``, which knows where it stands."""


def _integer(literal: str) -> int:
    if len(literal.lstrip("-")) > MOST_DIGITS:
        raise MalformedBody(f"The body holds an integer of more than {MOST_DIGITS} digits.")
    return int(literal)


def _number(literal: str) -> float | int | _Inexact:
    number = float(literal)
    if number in (float("inf"), float("-inf")):
        raise MalformedBody(f"The number {literal[:40]} is too large.")
    if number == 0:  # asked of the digits: a vanishing exponent is beyond Decimal, too
        return _Inexact(literal) if re.match("-?[0.]*[1-9]", literal) else 0
    shortest = repr(number)  # what RFC 8785 writes: the fewest digits that read back as the same double
    if shortest != literal and Decimal(shortest) != Decimal(literal):
        return _Inexact(literal)
    return int(number) if number.is_integer() else number


def _refuse_constant(literal: str) -> NoReturn:
    raise MalformedBody(f"{literal} is not a JSON number.")


def _check(value: Any, faults: list[Fault], path: list[str | int]) -> None:
    """Goes through every value once; notes where a number stands that JSON cannot carry exactly."""
    if isinstance(value, dict | list):
        for step, member in value.items() if isinstance(value, dict) else enumerate(value):
            path.append(step)
            _check(member, faults, path)
            path.pop()
    elif isinstance(value, _Inexact):
        faults.append(Fault(pointer(*path), "Has more digits than a JSON number carries exactly (RFC 8785)."))
    elif isinstance(value, str):
        _refuse_unstorable(value)
    elif isinstance(value, int) and abs(value) > MOST_EXACT:
        faults.append(Fault(pointer(*path), f"Must be from -{MOST_EXACT} to {MOST_EXACT} (RFC 7493)."))


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def _refuse_unstorable(text: str) -> None:
    if found := _UNSTORABLE.search(text):
        raise MalformedBody(f"The body holds U+{ord(found[0]):04X}, which is not text.")
