"""One HTTP request on a connection of its own, with one deadline for all of it. What connectors to HTTP sinks share.

No proxy, no redirect, no retry, no connection that stood idle before: that the connection failed proves that nothing
was sent, and one call is one request.
"""

import json
import os
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpcore

from workers.connectors.answers import Busy, NotSent, Uncertain

MOST_ANSWER = 262_144
"""Bytes of an answer that are read; a longer one is not understood."""
SECRETS = "SINK_"
"""What a secret's name in the environment begins with: a tool's settings must not reach the product's own."""
_SECRET = re.compile(rf"{SECRETS}[A-Z0-9_]{{1,60}}", re.ASCII)
_AT_HOME = ("127.0.0.1", "::1", "localhost")


class BadSetting(ValueError):
    """The tool's sink settings cannot be used; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the sink said: status, headers by lower-case name, and the body as JSON; None where it is none."""

    status: int
    headers: Mapping[str, str]
    content: Any

    @property
    def retry_after(self) -> float | None:
        """The seconds the sink asks for; the other form of the header, a date, is not worth the clocks' difference."""
        value = self.headers.get("retry-after", "")
        return float(value) if re.fullmatch(r"[0-9]{1,9}", value, re.ASCII) else None

    @property
    def words(self) -> str:
        """Status and message, for people."""
        error = self.content.get("error") if isinstance(self.content, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        return f"{self.status}: {message}" if isinstance(message, str) else str(self.status)


def ask(
    method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None, timeout: float
) -> Said | NotSent | Uncertain:
    """Sends one request; ``timeout`` in seconds is for all of it, connecting and reading included."""
    deadline = time.monotonic() + timeout
    named = {"Accept": "application/json", "Connection": "close", **headers}
    if body is not None:
        named["Content-Type"] = "application/json"
    try:
        with httpcore.ConnectionPool(
            ssl_context=_tls(), retries=0, network_backend=Backend(lambda: deadline)
        ) as connections:
            return _said(connections, method, url, named, body)
    except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
        return NotSent(f"No connection to {host_of(url)}: {error or type(error).__name__}")
    except (httpcore.LocalProtocolError, UnicodeError) as error:  # our own request is none; it did not leave
        return NotSent(f"The request cannot be written: {error}")
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
        return Uncertain(f"{host_of(url)} gave no answer: {type(error).__name__} {error}".rstrip())


def _said(
    connections: httpcore.ConnectionPool,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None,
) -> Said | Uncertain:
    with connections.stream(method, url, headers=list(headers.items()), content=body) as answer:
        read = bytearray()
        for chunk in answer.iter_stream():
            read += chunk
            if len(read) > MOST_ANSWER:
                return Uncertain(f"{answer.status}, and an answer of more than {MOST_ANSWER} bytes.")
        named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
        return Said(answer.status, named, _json(bytes(read)))


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


class Backend(httpcore.SyncBackend):
    """Gives every step what is left until the deadline of the call, not a time of its own."""

    def __init__(self, deadline: Callable[[], float]) -> None:
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(self._deadline(), httpcore.ConnectTimeout)
        stream = super().connect_tcp(host, port, left, local_address, socket_options)
        return _Stream(stream, self._deadline)


class _Stream(httpcore.NetworkStream):
    """A connection that is over at the deadline, however slowly the other side drips."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Callable[[], float]) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(self._deadline(), httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(self._deadline(), httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(self._deadline(), httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._deadline)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left(deadline: float, late: type[httpcore.TimeoutException]) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise late("the call's time is over")
    return left


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


# What connectors read from a tool's settings.


def secret(sink_settings: Mapping[str, Any], name: str) -> str | None:
    """The secret whose name in the environment the setting gives; None where there is no such setting.

    Raises BadSetting where the name is not one of ours to read, or nothing stands under it.
    """
    variable = sink_settings.get(name)
    if variable is None:
        return None
    if not isinstance(variable, str) or not _SECRET.fullmatch(variable):
        raise BadSetting(
            f"{name} names an environment variable that begins with {SECRETS}, not {variable!r}."
        )
    value = os.environ.get(variable, "")
    if not value:
        raise BadSetting(f"Set {variable} in the environment.")
    return value


def authorised(sink_settings: Mapping[str, Any]) -> dict[str, str]:
    """The header that carries the token of ``token_env``; none where there is no such setting. Raises BadSetting."""
    token = secret(sink_settings, "token_env")
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def address(sink_settings: Mapping[str, Any], name: str = "url") -> str:
    """The address that the setting gives. Raises BadSetting: only HTTPS leaves this machine."""
    url = sink_settings.get(name)
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise BadSetting(f"{name} is an address such as https://sink.example/actions.")
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _AT_HOME):
        raise BadSetting(f"{name} begins with https:// (http:// only on this machine).")
    if not parts.hostname or parts.username or parts.password:
        raise BadSetting(f"{name} names a host, and never a secret.")
    return url


def host_of(url: str) -> str:
    """Host and port: the sink's identity."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()


def found_at(content: Any, pointer: str) -> Any:
    """The member that an RFC 6901 pointer names, or None."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(content, dict):
            content = content.get(name)
        elif isinstance(content, list) and name.isascii() and name.isdigit() and int(name) < len(content):
            content = content[int(name)]
        else:
            return None
    return content


def text_at(content: Any, pointer: str) -> str | None:
    """The text or whole number there, as text; None for anything else and for nothing."""
    found = found_at(content, pointer)
    if isinstance(found, bool) or not isinstance(found, str | int):
        return None
    try:
        return str(found) or None
    except ValueError:  # a number of more than 4300 digits
        return None


def busy_or_uncertain(said: Said) -> Busy | Uncertain:
    """What every HTTP sink means by the statuses that say nothing about the request itself."""
    if said.status in (401, 403, 429) or (said.status == 503 and said.retry_after is not None):
        return Busy(said.words, retry_after=said.retry_after)
    return Uncertain(said.words)
