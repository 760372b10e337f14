"""The two keys of an action, the fingerprint of its material content, and canonical JSON.

All are computed here, on the server, from stable facts; a client or a model never chooses one
(docs/protocol.md, Identity).
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from uuid import UUID

import rfc8785


def key(fields: Sequence[str | int]) -> str:
    """First 40 hex digits of SHA-256 over the fields as one JSON array.

    An array keeps the fields apart: ``["a|b", "c"]`` and ``["a", "b|c"]`` differ, joined strings would not.
    """
    canonical = json.dumps(list(fields), ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()[:40]


def action_key(*, tenant: UUID, reference: str, action: str, target: str, step: int) -> str:
    """Identity of one business action, the same across retries, replays, restarts and revisions."""
    return key([str(tenant), reference, action, target, step])


def idempotency_key(
    *, tenant: UUID, reference: str, action: str, target: str, step: int, approved_revision: int
) -> str:
    """Identity of one approved intent; what the sink is given with every attempt."""
    return key([str(tenant), reference, action, target, step, approved_revision])


def canonical(value: object) -> str:
    """RFC 8785 text of a JSON value. Raises rfc8785.CanonicalizationError for what JSON cannot carry exactly."""
    if _is_plain(value):
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        if not _BEYOND.search(text):
            return text
    return rfc8785.dumps(value).decode("utf-8")  # type: ignore[arg-type]


_BEYOND = re.compile("[\ud800-\U0010ffff]")
"""Where the order of UTF-16 code units, which RFC 8785 sorts by, is no longer that of code points."""
_MOST_EXACT = 2**53 - 1


def _is_plain(value: object) -> bool:
    """Whether the standard library writes the value as RFC 8785 does, only faster: text, exact integers, true, null."""
    if isinstance(value, dict):
        return all(type(name) is str for name in value) and all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if type(value) is int:
        return -_MOST_EXACT <= value <= _MOST_EXACT
    return value is None or type(value) in (str, bool)


def fingerprint(*, parameters: Mapping[str, object], expects: Mapping[str, object]) -> str:
    """SHA-256 hex of the canonical material content: same fingerprint, same effect."""
    return sha256(canonical({"expects": dict(expects), "parameters": dict(parameters)}))


def sha256(text: str) -> str:
    """SHA-256 of UTF-8 text, 64 hex digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
