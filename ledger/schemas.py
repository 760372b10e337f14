"""JSON Schema 2020-12 as we use it: strict types, whole patterns, no document from elsewhere, a fault per member."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema
import referencing
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend

_MOST_NAME = 100


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with what was sent: where (RFC 6901 pointer) and what to do about it."""

    pointer: str
    detail: str


def pointer(*parts: str | int) -> str:
    """An RFC 6901 JSON pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def validator(schema: Mapping[str, Any]) -> Any:
    """A validator of the schema. A ``$ref`` to another document is an error, never a fetch."""
    return _Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER, registry=referencing.Registry()
    )


def fault_of_schema(schema: str) -> str | None:
    """What is wrong with the text as a JSON Schema of an object's members, or None."""
    content = json.loads(schema)
    if not isinstance(content, dict) or content.get("type") != "object":
        return "It must describe an object."
    try:
        jsonschema.Draft202012Validator.check_schema(content)
    except SchemaError as error:
        return f"{'/'.join(map(str, error.absolute_path)) or 'It'} is no JSON Schema 2020-12: {error.message[:200]}"
    return None


def faults(checked_by: Any, instance: object, *under: str) -> list[Fault]:
    """Everything the validator finds wrong, each once, by pointer; ``under`` is where the instance stands."""
    found = {fault for error in checked_by.iter_errors(instance) for fault in _faults(error, under)}
    return sorted(found, key=lambda fault: (fault.pointer, fault.detail))


def _faults(error: ValidationError, under: Sequence[str]) -> Iterator[Fault]:
    """jsonschema names the object that lacks a member or has one too many; people look for the member."""
    path: list[str | int] = [*under, *error.absolute_path]
    schema: Any = error.schema
    given: Any = error.instance
    if error.validator == "required":
        missing = [name for name in schema["required"] if name not in given]
        yield from (Fault(pointer(*path, name), "Is required.") for name in missing)
    elif error.validator == "additionalProperties" and isinstance(given, dict):
        unknown = [name for name in given if name not in schema.get("properties", {})]
        # A name of any length can come in, and is not worth repeating.
        yield from (Fault(pointer(*path, name[:_MOST_NAME]), "Is not known here.") for name in unknown)
    else:
        yield Fault(pointer(*path), _message(error))


def _message(error: ValidationError) -> str:
    wanted = error.validator_value
    words = ", ".join(map(str, wanted)) if isinstance(wanted, list) else wanted
    return _MESSAGES.get(str(error.validator), "Does not fit: {0} is {1}.").format(words, error.validator)


_MESSAGES = {
    "type": "Must be of the JSON type {0}.",
    "enum": "Must be one of {0}.",
    "minimum": "Must be at least {0}.",
    "maximum": "Must be at most {0}.",
    "minLength": "Must be at least {0} characters long.",
    "maxLength": "Must be at most {0} characters long.",
    "maxItems": "Must have at most {0} items.",
    "pattern": "Must match the pattern {0}.",
    "format": "Must be a {0} (RFC 3339), such as 2026-11-30T10:39:00Z.",
    "not": "Holds a character that cannot stand here.",
}

# JSON Schema's patterns are ECMA-262's, where `$` is the very end; Python's lets one newline by.
_TOKENS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", re.DOTALL)


def _pattern(checked_by: Any, pattern: str, instance: object, _schema: object) -> Iterator[ValidationError]:
    whole = _TOKENS.sub(lambda token: r"\Z" if token[0] == "$" else token[0], pattern)
    if checked_by.is_type(instance, "string") and not re.search(whole, str(instance)):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


_Validator = extend(jsonschema.Draft202012Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]
