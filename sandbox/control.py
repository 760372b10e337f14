"""The sandbox's own pages under /_sandbox/: the truth to count, and the faults to order. No key needed.

GET    /_sandbox/effects?idempotency_key=&charge=&kind=  what really happened, oldest first
GET    /_sandbox/requests?idempotency_key=&charge=   what arrived, oldest first; status null: not answered
GET    /_sandbox/faults                              what is still to strike
POST   /_sandbox/faults                              {"fault", "times", "seconds", "charge", "kind"}
DELETE /_sandbox/faults                              forget them, and let every hanging request go on
POST   /_sandbox/events                              {"url", "secret"}: where events go from now on; "": nowhere
GET    /_sandbox/health
"""

import json
import sqlite3
from typing import Any

from sandbox import faults
from sandbox.errors import ApiError, invalid_request, unknown_url
from sandbox.events import FAULTS as EVENT_FAULTS
from sandbox.events import Events
from sandbox.faults import Fault, Faults
from sandbox.forms import json_of, parameters_of, refuse_unknown, text
from sandbox.moments import rfc3339
from sandbox.store import Store
from sandbox.wire import Answer, Request

NAMES = sorted({*faults.NAMES, *EVENT_FAULTS})
MOST_TIMES = 1_000_000
MOST_SECONDS = 86_400
DEFAULT_SECONDS = {faults.RATE_LIMIT: 1.0}  # what Retry-After says; every other fault waits for half a minute
FILTERS = ("idempotency_key", "charge")
EFFECTS = """
SELECT id, kind, idempotency_key, parameters, created FROM (
    SELECT id, 'refund' AS kind, idempotency_key, charge, parameters, created, sequence FROM refunds
    UNION ALL
    SELECT id, kind, idempotency_key, charge, parameters, created, sequence FROM effects
)
WHERE (:idempotency_key IS NULL OR idempotency_key = :idempotency_key)
  AND (:charge IS NULL OR charge = :charge)
  AND (:kind IS NULL OR kind = :kind)
ORDER BY created, sequence
"""
ARRIVALS = """
SELECT method, path, idempotency_key, parameters, arrived, status FROM arrivals
WHERE (:idempotency_key IS NULL OR idempotency_key = :idempotency_key)
  AND (:charge IS NULL OR charge = :charge)
ORDER BY sequence
"""


class Control:
    def __init__(self, store: Store, pending: Faults, events: Events) -> None:
        self._store = store
        self._faults = pending
        self._events = events

    def answer(self, request: Request) -> Answer:
        try:
            return self._answer(request)
        except ApiError as refusal:
            return refusal.answer

    def _answer(self, request: Request) -> Answer:
        match request.method, request.segments[1:]:
            case "GET", ["health"]:
                return Answer.of({"status": "ok"})
            case "GET", ["effects"]:
                wanted = _filter(request, "kind")
                return Answer.of([_effect(row) for row in self._store.rows(EFFECTS, wanted)])
            case "GET", ["requests"]:
                return Answer.of([_arrival(row) for row in self._store.rows(ARRIVALS, _filter(request))])
            case "GET", ["faults"]:
                return Answer.of(self._faults.pending())
            case "POST", ["faults"]:
                self._faults.add(read_fault(request.body))
                return Answer.of(self._faults.pending(), status=201)
            case "DELETE", ["faults"]:
                cleared, released = self._faults.clear()
                return Answer.of({"cleared": cleared, "released": released})
            case "POST", ["events"]:
                content = json_of(request)
                self._events.aim(str(content.get("url", "")), str(content.get("secret", "")))
                return Answer.of({"url": content.get("url", "")})
            case _:
                raise unknown_url(request.method, request.path)


def _filter(request: Request, *more: str) -> dict[str, str | None]:
    parameters = parameters_of(request)
    refuse_unknown(parameters, (*FILTERS, *more))
    return {name: text(parameters, name) for name in (*FILTERS, *more)}


def _effect(row: sqlite3.Row) -> dict[str, object]:
    return {
        "id": row["id"],
        "idempotency_key": row["idempotency_key"],
        "kind": row["kind"],
        "parameters": json.loads(row["parameters"]),
        "created": rfc3339(row["created"]),
    }


def _arrival(row: sqlite3.Row) -> dict[str, object]:
    return {
        "method": row["method"],
        "path": row["path"],
        "idempotency_key": row["idempotency_key"],
        "parameters": None if row["parameters"] is None else json.loads(row["parameters"]),
        "arrived": rfc3339(row["arrived"]),
        "status": row["status"],
    }


def read_fault(body: bytes) -> Fault:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise invalid_request("A fault is ordered as a JSON object.") from None
    if not isinstance(content, dict):
        raise invalid_request("A fault is ordered as a JSON object.")
    refuse_unknown(content, ("fault", "times", "seconds", "charge", "kind"))
    name = content.get("fault")
    if name not in NAMES:
        raise invalid_request(f"Unknown fault; known are: {', '.join(NAMES)}", param="fault")
    return Fault(
        fault=name,
        times=_times(content),
        seconds=_seconds(content),
        charge=_choice(content, "charge"),
        kind=_choice(content, "kind", among=faults.KINDS),
    )


def _times(content: dict[str, Any]) -> int | None:
    if content["fault"] == faults.LIST_LAG and "times" not in content:
        return None
    times = content.get("times", 1)
    if type(times) is not int or not 1 <= times <= MOST_TIMES:  # a bool is not a number of times
        raise invalid_request(f"times is a whole number from 1 to {MOST_TIMES}.", param="times")
    return times


def _seconds(content: dict[str, Any]) -> float:
    seconds = content.get("seconds", DEFAULT_SECONDS.get(content["fault"], 30.0))
    if type(seconds) not in (int, float) or not 0 <= seconds <= MOST_SECONDS:  # NaN fails that too
        raise invalid_request(f"seconds is a number from 0 to {MOST_SECONDS}.", param="seconds")
    return float(seconds)


def _choice(content: dict[str, Any], name: str, *, among: tuple[str, ...] | None = None) -> str | None:
    value = content.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or (among and value not in among):
        raise invalid_request(f"{name} is {' or '.join(among) if among else 'a string'}.", param=name)
    return value
