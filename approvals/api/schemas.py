"""What each call's body must look like, as JSON Schema 2020-12: types are JSON's own, "12" and true are not 12."""

from collections.abc import Mapping
from typing import Any

from approvals.api.errors import InvalidRequest
from approvals.states import Verdict
from ledger import schemas
from ledger.states import AttestedOutcome

_TEXT = {"type": "string"}
# `not` the other characters, instead of "only these": in Python a pattern that ends in $ lets a newline pass.
_ONE_WORD = {"not": {"type": "string", "pattern": "[^!-~]"}}
_EVIDENCE = {
    "type": "array",
    "maxItems": 50,
    "items": {
        "type": "object",
        "properties": {
            "statement": {"type": "string", "minLength": 1, "maxLength": 2000},
            "source": {"type": "string", "minLength": 1, "maxLength": 200},
            "fetched_at": {"type": "string", "maxLength": 40, "format": "date-time", **_ONE_WORD},
        },
        "required": ["statement", "source"],
        "additionalProperties": False,
    },
}
_CONTENT = {
    "parameters": {"type": "object"},
    "expects": {"type": "object"},
    "rationale": {"type": "string", "maxLength": 10_000},
    "evidence": _EVIDENCE,
    "trace_id": {"type": "string", "maxLength": 64, **_ONE_WORD},
}
_REASON = {"type": "string", "maxLength": 2000}


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


# Lengths and invisible characters of the facts are judged where they are normalised: `proposals.facts`.
PROPOSAL = _object(
    {
        "reference": _TEXT,
        "action": _TEXT,
        "target": _TEXT,
        "step": {"type": "integer"},
        "compensates": {"type": "string", "minLength": 40, "maxLength": 40, "not": {"pattern": "[^0-9a-f]"}},
        **_CONTENT,
    },
    "reference",
    "action",
    "target",
    "parameters",
)
REVISION = _object(_CONTENT, "parameters")
WITHDRAWAL = _object({"reason": _REASON})
EMPTY = _object({})
STOP = _object({"reason": _REASON}, "reason")
CLOSURE = _object({"reason": _REASON}, "reason")
COMPENSATION = _object({"rationale": {"type": "string", "maxLength": 10_000}})
RESOLUTION = _object(
    {
        "testimony": {"enum": AttestedOutcome.values},
        "reference": {"type": "string", "maxLength": 255},
        "evidence": _REASON,
        "until": {"type": "string", "maxLength": 40, "format": "date-time", **_ONE_WORD},
    },
    "testimony",
    "evidence",
)
DECISION = _object(
    {
        "verdict": {"enum": Verdict.values},
        "digest": {
            "type": "string",
            "minLength": 64,
            "maxLength": 64,
            "not": {"type": "string", "pattern": "[^0-9a-f]"},
        },
        "reason_code": {"type": "string", "maxLength": 50},
        "reason": _REASON,
        "typed_amount": {
            "type": ["string", "null"],
            "maxLength": 24,
            "not": {"type": "string", "pattern": "[^0-9.,]"},
        },
    },
    "verdict",
    "digest",
)


def checked(body: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The body, if it is what the schema asks for. Raises InvalidRequest with a pointer to each member that is not."""
    if faults := schemas.faults(schemas.validator(schema), body):
        raise InvalidRequest(faults)
    valid: dict[str, Any] = body
    return valid
