"""Any HTTP service that honours an idempotency key and can be asked for it: described by a tool's settings alone.

    {"url": "https://erp.example/actions", "method": "POST", "headers": {"X-Company": "12"},
     "token_env": "SINK_ERP_TOKEN", "key_header": "Idempotency-Key",
     "reference": "/id", "status": "/status",
     "look_up": {"url": "https://erp.example/actions?key={key}", "key": "/key"},
     "compare": {"/amount": "/total"}, "answers": {"409": "in_progress", "503": "busy"}}

Names of members are RFC 6901 pointers into the sink's answers; ``compare`` pairs one into the order with one into what
a look-up finds. ``answers`` says what the sink documents a status to mean, where that differs from the table here.
``list`` says how the sink lists its effects, if it does (``http_listing``): without it they are not reconciled.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from ledger.claims import Grant
from workers.connectors.answers import (
    Absent,
    Answer,
    Busy,
    Differs,
    Found,
    InProgress,
    NotSent,
    Page,
    Receipt,
    Refused,
    SinkAway,
    Uncertain,
)
from workers.connectors.http_listing import HttpListing
from workers.connectors.wire import (
    BadSetting,
    Said,
    address,
    ask,
    authorised,
    busy_or_uncertain,
    found_at,
    host_of,
    text_at,
)

_METHODS = ("POST", "PUT", "PATCH", "DELETE")
_REFUSED = (400, 404, 410, 412, 422)
_MEANINGS = ("refused", "busy", "in_progress", "uncertain")


class HttpAction:
    """Sends the order's bytes under the key, and asks for the key."""

    def identity(self, sink_settings: Mapping[str, Any]) -> str:
        """Host and port of the address. Raises BadSetting for settings that nothing could be sent with."""
        url, looked_up = address(sink_settings), address(_look_up(sink_settings))
        if "{key}" not in looked_up or host_of(looked_up) != host_of(url):
            raise BadSetting("look_up.url is at the same host as url, and has {key} where the key goes.")
        _method(sink_settings)
        _meanings(sink_settings)
        HttpListing.read(sink_settings)
        return host_of(url)

    def send(self, grant: Grant, *, timeout: float) -> Answer:
        """One request; a 2xx with a reference is a receipt."""
        try:
            url, method, headers = _request(grant)
            meanings = _meanings(grant.sink_settings)
        except BadSetting as error:
            return NotSent(str(error))
        said = ask(method, url, headers=headers, body=grant.body.encode(), timeout=timeout)
        return _answer(said, grant.sink_settings, meanings) if isinstance(said, Said) else said

    def look_up(self, grant: Grant, *, timeout: float) -> Found:
        """Asks for the key: 404 is absence, a 200 that carries the key is the effect."""
        try:
            settings = _look_up(grant.sink_settings)
            url = address(settings).replace("{key}", quote(grant.key, safe=""))
            headers = {**_headers(grant.sink_settings), **authorised(grant.sink_settings)}
        except BadSetting as error:
            return Uncertain(str(error))
        said = ask("GET", url, headers=headers, timeout=timeout)
        if not isinstance(said, Said):
            return Uncertain(f"The look-up got no answer: {said.note}")
        if said.status == 404:
            return Absent()
        if said.status != 200 or text_at(said.content, str(settings.get("key", "/key"))) != grant.key:
            return Uncertain(f"The look-up was answered with something else: {said.words}")
        return _found(said, grant)

    def can_list(self, sink_settings: Mapping[str, Any]) -> bool:
        """Whether the settings say how the sink lists its effects."""
        return sink_settings.get("list") is not None

    def list_effects(
        self,
        sink_settings: Mapping[str, Any],
        *,
        since: datetime,
        until: datetime,
        cursor: str | None,
        timeout: float,
    ) -> Page:
        """A page as the settings' ``list`` describes it. Raises SinkAway."""
        try:
            listing = HttpListing.read(sink_settings)
            headers = {**_headers(sink_settings), **authorised(sink_settings)}
        except BadSetting as error:
            raise SinkAway(str(error)) from error
        if listing is None:
            raise SinkAway("The tool's settings say nothing of a listing.")
        return listing.page(headers, since=since, until=until, cursor=cursor, timeout=timeout)


def _request(grant: Grant) -> tuple[str, str, dict[str, str]]:
    settings = grant.sink_settings
    headers = {**_headers(settings), **authorised(settings)}
    headers[str(settings.get("key_header", "Idempotency-Key"))] = grant.key
    if grant.sink_version is not None:
        quoted = grant.sink_version.startswith(('"', 'W/"'))
        headers["If-Match"] = grant.sink_version if quoted else f'"{grant.sink_version}"'
    return address(settings), _method(settings), headers


def _answer(said: Said, settings: Mapping[str, Any], meanings: Mapping[int, str]) -> Answer:
    if 200 <= said.status < 300:
        return _receipt(said, settings) or Uncertain(f"{said.status}, and no reference in the answer.")
    match meanings.get(said.status, "refused" if said.status in _REFUSED else "uncertain"):
        case "refused":
            reason = "sink_version" if said.status == 412 else text_at(said.content, "/error/code")
            return Refused(reason or f"http_{said.status}", said.words)
        case "busy":
            return Busy(said.words, retry_after=said.retry_after)
        case "in_progress":
            return InProgress(said.words)
    return Uncertain(said.words) if said.status in meanings else busy_or_uncertain(said)


def _receipt(said: Said, settings: Mapping[str, Any]) -> Receipt | None:
    reference = text_at(said.content, str(settings.get("reference", "/id")))
    if reference is None:
        return None
    status = text_at(said.content, str(settings.get("status", "/status"))) or str(said.status)
    answer = said.content if isinstance(said.content, dict) else {"answer": said.content}
    return Receipt(reference, status, answer)


def _found(said: Said, grant: Grant) -> Found:
    receipt = _receipt(said, grant.sink_settings)
    if receipt is None:
        return Uncertain("The look-up found the key, and no reference with it.")
    order = json.loads(grant.body)
    for ordered, found in grant.sink_settings.get("compare", {}).items():
        if found_at(order, ordered) != found_at(said.content, found):
            return Differs(receipt, f"{receipt.reference} carries this key but another {found.strip('/')}.")
    return receipt


def _look_up(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    looked_up = settings.get("look_up")
    if not isinstance(looked_up, dict):
        raise BadSetting("look_up says where an effect is found again by its key: {url, key}.")
    return looked_up


def _headers(settings: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in settings.get("headers", {}).items()}


def _method(settings: Mapping[str, Any]) -> str:
    method = settings.get("method", "POST")
    if method not in _METHODS:
        raise BadSetting(f"method is one of {', '.join(_METHODS)}.")
    return str(method)


def _meanings(settings: Mapping[str, Any]) -> dict[int, str]:
    """{status: what the sink documents it to mean}. Raises BadSetting."""
    given = settings.get("answers", {})
    if not isinstance(given, dict) or not all(
        status.isascii() and status.isdigit() and meaning in _MEANINGS for status, meaning in given.items()
    ):
        raise BadSetting(f'answers is {{"status": meaning}}, a meaning one of {", ".join(_MEANINGS)}.')
    return {int(status): meaning for status, meaning in given.items()}
