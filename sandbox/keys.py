"""Idempotency keys, as Stripe documents them under "Idempotent requests" and "Advanced error handling".

- The first answer is kept under its key once execution has begun, a 500 included, and replayed to the byte.
- What is refused before that (no API key, rate limit, validation, a conflict) is not kept.
- The same key with other parameters, or on another path, is an error; this is checked before anything else.
- While the first call is under way, a second with its key is turned away with 409.
- Keys are pruned when their window is over, and then *a late repeat executes again*.
"""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandbox.errors import invalid_request, key_in_use, key_on_another_path, key_with_other_parameters
from sandbox.store import Store
from sandbox.wire import Answer, Request, to_json

LONGEST_KEY = 255


@dataclass(frozen=True, slots=True)
class Call:
    """What a key stands for: the path it was first used on and the parameters it was first used with."""

    key: str | None
    path: str
    parameters: str
    request_id: str


def key_of(request: Request) -> str | None:
    """The request's Idempotency-Key; None where it has none, and then every send executes."""
    key = request.headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isprintable()):
        raise invalid_request(f"Idempotency keys are 1 to {LONGEST_KEY} printable characters long.")
    return key


class Keys:
    def __init__(self, store: Store, *, window: float, ignored: bool = False) -> None:
        """`window` in seconds; `ignored` makes a provider that has never heard of keys."""
        self._store = store
        self._window = window
        self._ignored = ignored
        self._in_flight: dict[str, Call] = {}
        store.write("DELETE FROM answers WHERE kept <= ?", (time.time() - window,))

    @contextmanager
    def claim(self, call: Call) -> Iterator[Answer | None]:
        """Yield the kept answer to replay, or None: then the call is ours to carry out, and ours alone."""
        if call.key is None or self._ignored:
            yield None
            return
        kept = self._admit(call.key, call)
        if kept is not None:
            yield kept
            return
        try:
            yield None
        finally:
            del self._in_flight[call.key]

    def keep(self, db: sqlite3.Connection, call: Call, answer: Answer) -> None:
        """Keep the answer in the transaction of its effect, so that no crash can part the two."""
        if call.key is None or self._ignored:
            return
        first = (call.key, call.path, call.parameters, call.request_id)
        db.execute(
            "INSERT OR REPLACE INTO answers"
            " (idempotency_key, path, parameters, request_id, status, body, headers, kept)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*first, answer.status, answer.body, to_json(answer.headers), time.time()),
        )

    def _admit(self, key: str, call: Call) -> Answer | None:
        # Nothing is awaited here, so no other call can come between the looking and the claiming.
        kept = self._kept(key)
        first = kept[0] if kept else self._in_flight.get(key)
        if first is not None:
            _compare(key, call, first)
        if kept is not None:
            return kept[1]
        if first is not None:
            raise key_in_use(key)
        self._in_flight[key] = call
        return None

    def _kept(self, key: str) -> tuple[Call, Answer] | None:
        """An answer older than the window is as good as pruned: not seen here, overwritten by `keep`."""
        rows = self._store.rows(
            "SELECT path, parameters, request_id, status, body, headers FROM answers"
            " WHERE idempotency_key = ? AND kept > ?",
            (key, time.time() - self._window),
        )
        if not rows:
            return None
        path, parameters, request_id, status, body, headers = rows[0]
        replayed = {"Idempotent-Replayed": "true", "Original-Request": request_id}
        return Call(key, path, parameters, request_id), Answer(status, body, json.loads(headers) | replayed)


def _compare(key: str, call: Call, first: Call) -> None:
    if call.path != first.path:
        raise key_on_another_path(key, call.path, first.path)
    if call.parameters != first.parameters:
        raise key_with_other_parameters(key)
