"""Every API request as it arrived on the wire, written down before anything else is done with it.

Tests count sends here. The Authorization header's value is never written.
"""

import time
from collections.abc import Mapping

from sandbox.forms import canonical
from sandbox.refunds import charge_of
from sandbox.store import Store
from sandbox.wire import Request


class Arrivals:
    def __init__(self, store: Store) -> None:
        self._store = store

    def note(self, request: Request, parameters: Mapping[str, object] | None) -> int:
        """Write the request down, durably, and answer its number; None for parameters nobody can read."""
        return self._store.write(
            "INSERT INTO arrivals (method, path, idempotency_key, charge, parameters, arrived)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                request.method,
                request.path,
                request.headers.get("idempotency-key"),
                None if parameters is None else charge_of(parameters),
                None if parameters is None else canonical(parameters),
                time.time(),
            ),
        )

    def answered(self, number: int, status: int) -> None:
        """Called just before the answer is sent: whoever has read it finds its status here."""
        self._store.write("UPDATE arrivals SET status = ? WHERE sequence = ?", (status, number))
