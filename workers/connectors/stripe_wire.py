"""The SDK's own extension point, an HTTP client: one request a call, and one moment at which all of it is over.

The client the SDK ships gives every read a time of its own, so that a server that drips holds a worker for hours.
"""

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import httpcore
import stripe

from workers.connectors.wire import Backend

_CONNECTIONS = 64
_KEPT_ALIVE = 30.0
"""Seconds; what lies idle for longer may be gone without anybody having said so."""
_MOST_ANSWER = 4_194_304
"""Bytes; a page of a hundred refunds is a few hundred thousand."""
_deadline: ContextVar[float] = ContextVar("deadline")


class NotConnected(stripe.APIConnectionError):
    """No connection came about, so nothing was sent."""


@contextmanager
def within(timeout: float) -> Iterator[None]:
    """All that is asked in this block, connecting and reading included, ends after so many seconds."""
    before = _deadline.set(time.monotonic() + timeout)
    try:
        yield
    finally:
        _deadline.reset(before)


def left() -> float:
    """Seconds that are left in this block."""
    return _deadline.get() - time.monotonic()


class DirectClient(stripe.HTTPClient):
    """Sends within ``within``: no proxies, no redirects, no repeats; connections are kept for the next call."""

    name = "httpcore"

    def __init__(self) -> None:
        super().__init__()
        self._connections = httpcore.ConnectionPool(
            ssl_context=_tls(),
            max_connections=_CONNECTIONS,
            max_keepalive_connections=_CONNECTIONS,
            keepalive_expiry=_KEPT_ALIVE,
            retries=0,
            network_backend=Backend(_deadline.get),
        )

    def request(
        self, method: str, url: str, headers: Mapping[str, str] | None, post_data: Any = None, **_: Any
    ) -> tuple[Any, int, Mapping[str, str]]:
        """Body, status and headers by lower-case name. Raises NotConnected, else APIConnectionError."""
        body = post_data.encode() if isinstance(post_data, str) else post_data
        named = list((headers or {}).items())
        try:
            return self._answer(method.upper(), url, named, body)
        except (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.PoolTimeout) as error:
            raise _as(NotConnected, "No connection", error) from error
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise _as(stripe.APIConnectionError, "No answer", error) from error

    def _answer(
        self, method: str, url: str, headers: list[tuple[str, str]], body: bytes | None
    ) -> tuple[bytes, int, Mapping[str, str]]:
        # How long a connection is waited for; every step on it goes by the deadline itself.
        waits = {"timeout": {"pool": max(left(), 0.001)}}
        with self._connections.stream(method, url, headers=headers, content=body, extensions=waits) as answer:
            read = bytearray()
            for chunk in answer.iter_stream():
                read += chunk
                if len(read) > _MOST_ANSWER:
                    raise httpcore.ReadError(f"an answer of more than {_MOST_ANSWER} bytes")
            named = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers
            }
            return bytes(read), answer.status, named

    def close(self) -> None:
        """Ends its connections."""
        self._connections.close()


def _as(kind: type[stripe.APIConnectionError], words: str, error: Exception) -> stripe.APIConnectionError:
    return kind(f"{words}: {type(error).__name__} {error}".rstrip(), should_retry=False)


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=stripe.ca_bundle_path)
