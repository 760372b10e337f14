"""Lists in pages, by keyset: what is added while one reads never shifts a row past the reader."""

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.errors import InvalidQuery, MalformedCursor
from ledger.schemas import Fault

PARAMETERS = ("cursor", "limit")
_USUAL, _MOST = 50, 100  # rows a page

M = TypeVar("M", bound=Model)


def page(rows: QuerySet[M], request: Request, *, by: str) -> tuple[list[M], str | None]:
    """One page in the order of a unique integer column (``-pk``: the newest first), and the cursor of the next."""
    column, descending = by.removeprefix("-"), by.startswith("-")
    limit = _limit(request)
    if (cursor := request.query_params.get("cursor")) is not None:
        after = "lt" if descending else "gt"
        rows = rows.filter(**{f"{column}__{after}": _position(cursor, request)})
    found = list(rows.order_by(by)[: limit + 1])
    if len(found) <= limit:
        return found, None
    return found[:limit], _cursor(getattr(found[limit - 1], column), request)


def listed(items: Iterable[Mapping[str, Any]], cursor: str | None, request: Request) -> dict[str, Any]:
    """The body of a page: its items, and where the next one is, or null."""
    return {"items": list(items), "next": _next(cursor, request) if cursor else None}


def answer(body: Mapping[str, Any], **headers: str) -> Response:
    """A page with its RFC 8288 ``Link`` to the next."""
    if body["next"]:
        headers["Link"] = f'<{body["next"]}>; rel="next"'
    return Response(body, headers=headers)


def _next(cursor: str, request: Request) -> str:
    query = request.query_params.copy()
    query["cursor"] = cursor
    return f"{request.path}?{query.urlencode()}"


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(_USUAL))
    if not re.fullmatch("[1-9][0-9]{0,2}", text) or int(text) > _MOST:
        raise InvalidQuery([Fault("limit", f"Must be a whole number from 1 to {_MOST}.")])
    return int(text)


# A cursor names its list, so that one list's is never taken for another's.


def _cursor(position: int, request: Request) -> str:
    return base64.urlsafe_b64encode(f"{request.path}:{position}".encode()).decode().rstrip("=")


def _position(cursor: str, request: Request) -> int:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise MalformedCursor from None
    path, _, position = text.rpartition(":")
    if path != request.path or not re.fullmatch("[0-9]{1,18}", position):
        raise MalformedCursor
    return int(position)


# Filters.


def text_filter(request: Request, name: str) -> str | None:
    """The parameter as facts are stored, in NFC and trimmed; None where it is not given."""
    if (text := request.query_params.get(name)) is None:
        return None
    normal = unicodedata.normalize("NFC", text).strip()
    if not normal or "\0" in normal:
        raise InvalidQuery([Fault(name, "Must be text, and not empty.")])
    return normal


def choice_filter(request: Request, name: str, choices: Iterable[str]) -> str | None:
    """The parameter, one of the choices; None where it is not given."""
    value, known = request.query_params.get(name), list(choices)
    if value is not None and value not in known:
        raise InvalidQuery([Fault(name, f"Must be one of {', '.join(known)}.")])
    return value
