"""Parameters as Stripe's clients send them: form-encoded, one level of brackets (`metadata[case]=1842`).

Stricter than Stripe where being lenient would guess: a field given twice, broken UTF-8 and a pair
without "=" are refused.
"""

import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from urllib.parse import parse_qsl

from sandbox.errors import ApiError, invalid_request
from sandbox.wire import Request

FORM = "application/x-www-form-urlencoded"

Parameters = dict[str, "str | dict[str, str]"]
Json = dict[str, object]

MAX_FIELDS = 200
# One text for one meaning: the order of fields does not matter, every value does.
canonical = json.JSONEncoder(sort_keys=True).encode

NAME = re.compile(r"(?P<name>[a-z_]+)(?:\[(?P<member>[^\[\]]+)\])?")
DIGITS = re.compile(r"[0-9]{1,12}", re.ASCII)


def parameters_of(request: Request) -> Parameters:
    """Read query string and body as one set of parameters; raise ApiError where that cannot be done."""
    if request.body and request.headers.get("content-type", "").partition(";")[0].strip() != FORM:
        raise invalid_request(f"Invalid request (check that your POST content type is {FORM}).")
    parameters: Parameters = {}
    for field, value in _pairs(request):
        _put(parameters, field, value)
    return parameters


def json_of(request: Request) -> dict[str, object]:
    """The body as a JSON object; raise ApiError where it is none."""
    try:
        content = json.loads(request.body)
    except (ValueError, RecursionError):
        raise invalid_request("The body is a JSON object.") from None
    if not isinstance(content, dict):
        raise invalid_request("The body is a JSON object.")
    return content


def refuse_unknown(parameters: Mapping[str, object], known: Collection[str]) -> None:
    for name in parameters:
        if name not in known:
            raise _unknown(name)


def text(parameters: Parameters, name: str, *, longest: int = 255) -> str | None:
    """A string of 1 to `longest` characters, or None where it was not sent."""
    value = parameters.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise invalid_request(f"Invalid string: {name}", param=name)
    if not value:
        message = f"You passed an empty string for '{name}'."
        raise invalid_request(message, code="parameter_invalid_empty", param=name)
    if len(value) > longest:
        raise invalid_request(f"{name} is longer than {longest} characters.", param=name)
    return value


def integer(parameters: Parameters, name: str, *, least: int = 0) -> int | None:
    """A plain decimal integer (no sign, no other script's digits), or None where it was not sent."""
    value = text(parameters, name)
    return None if value is None else parse_integer(value, name, least=least)


def parse_integer(value: str, name: str, *, least: int = 0) -> int:
    if not DIGITS.fullmatch(value):
        raise _invalid_integer(f"Invalid integer: {value[:40]}", name)
    if int(value) < least:
        raise _invalid_integer(f"This value must be greater than or equal to {least}.", name)
    return int(value)


def moment(parameters: Parameters, name: str) -> float | None:
    """RFC 3339 as seconds since the epoch, or None where it was not sent."""
    value = text(parameters, name)
    try:
        return None if value is None else datetime.fromisoformat(value).timestamp()
    except ValueError:
        raise invalid_request(f"{name} is a moment in RFC 3339.", param=name) from None


def _pairs(request: Request) -> list[tuple[str, str]]:
    try:
        form = "&".join(filter(None, (request.query, request.body.decode("ascii"))))
        return parse_qsl(
            form, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except ValueError as broken:  # UnicodeDecodeError is one too
        raise invalid_request("The parameters are not a valid form.") from broken


def _put(parameters: Parameters, field: str, value: str) -> None:
    match = NAME.fullmatch(field)
    if match is None:
        raise _unknown(field)
    name, member = match["name"], match["member"]
    target: dict[str, str] | Parameters = parameters
    if member is not None:
        group = parameters.setdefault(name, {})
        if isinstance(group, str):
            raise invalid_request(f"Parameter given twice: {name}", param=name)
        target = group
    if (member or name) in target:
        raise invalid_request(f"Parameter given twice: {field}", param=name)
    target[member or name] = value


def _unknown(name: str) -> ApiError:
    name = name[:40]
    return invalid_request(f"Received unknown parameter: {name}", code="parameter_unknown", param=name)


def _invalid_integer(message: str, name: str) -> ApiError:
    return invalid_request(message, code="parameter_invalid_integer", param=name)
