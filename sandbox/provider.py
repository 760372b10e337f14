"""The provider: where requests, keys, faults and refunds meet.

The order of checks is Stripe's ("Advanced error handling"): API key, parameters, idempotency key, execution;
only what is answered after execution has begun is kept under the key.

One thread carries every request, and changes from one to another only where a fault makes it `await`: all
that lies between is indivisible, with no lock anywhere.
"""

import base64
import binascii
import sqlite3
from pathlib import Path

from sandbox import faults, refunds
from sandbox.arrivals import Arrivals
from sandbox.control import Control
from sandbox.errors import (
    ApiError,
    card_declined,
    internal_error,
    key_in_use,
    missing_api_key,
    rate_limited,
    unknown_api_key,
    unknown_url,
)
from sandbox.faults import Fault, Faults
from sandbox.forms import Parameters, canonical, parameters_of, refuse_unknown
from sandbox.keys import Call, Keys, key_of
from sandbox.refunds import Order, Page
from sandbox.store import Store
from sandbox.wire import Answer, Dropped, Request

API_KEY_PREFIXES = ("sk_sandbox_", "sk_test_")


class Provider:
    def __init__(self, database: Path, *, key_window: float, ignore_keys: bool = False) -> None:
        self._store = Store(database)
        self._keys = Keys(self._store, window=key_window, ignored=ignore_keys)
        self._faults = Faults()
        self._arrivals = Arrivals(self._store)
        self._control = Control(self._store, self._faults)

    async def answer(self, request: Request) -> Answer:
        """Answer one request; raise Dropped where a fault has the connection closed instead."""
        if request.segments[:1] == ["_sandbox"]:
            return self._control.answer(request)
        form = _read(request)
        arrival = self._arrivals.note(request, None if isinstance(form, ApiError) else form)
        try:
            answer = await self._api(request, form)
        except ApiError as refusal:
            answer = refusal.answer
        self._arrivals.answered(arrival, answer.status)
        return answer.with_headers(_echo(request))

    def close(self) -> None:
        self._store.close()

    async def _api(self, request: Request, form: Parameters | ApiError) -> Answer:
        _check_api_key(request)
        if isinstance(form, ApiError):
            raise form
        match request.method, request.segments:
            case "POST", ["v1", "refunds"]:
                return await self._create_refund(request, form)
            case "GET", ["v1", "refunds"]:
                return await self._list_refunds(form)
            case "GET", ["v1", "refunds", identifier]:
                return Answer.of(refunds.retrieve(self._store, identifier))
            case "POST", ["v1", "refunds", identifier, "cancel"]:
                return self._cancel_refund(request, form, identifier)
            case "GET", ["v1", "charges", identifier]:
                return Answer.of(refunds.retrieve_charge(self._store, identifier))
            case _:
                raise unknown_url(request.method, request.path)

    async def _create_refund(self, request: Request, parameters: Parameters) -> Answer:
        order = Order.read(parameters)
        call = Call(key_of(request), request.path, canonical(parameters), request.id)
        with self._keys.claim(call) as kept:
            strikes = faults.STRIKE_EXECUTIONS if kept is None else faults.STRIKE_REPLAYS
            fault = self._faults.take(strikes, order.charge, order.payment_intent)
            await self._strike_before_commit(fault, call)
            answer = kept or self._execute(order, call, fault)
            await self._strike_after_commit(fault)
            return answer

    def _execute(self, order: Order, call: Call, fault: Fault | None) -> Answer:
        """The effect and the answer kept under the key are one transaction: a kill leaves both or neither."""
        with self._store.transaction() as db:
            answer = _outcome(db, order, call, fault.fault if fault else None)
            self._keys.keep(db, call, answer)
        return answer

    async def _strike_before_commit(self, fault: Fault | None, call: Call) -> None:
        match fault:
            case Fault(fault=faults.RATE_LIMIT, seconds=seconds):
                raise rate_limited(seconds)
            case Fault(fault=faults.CONFLICT):
                raise key_in_use(call.key or "none")
            case Fault(fault=faults.DROP_BEFORE_COMMIT):
                raise Dropped
            case Fault(fault=faults.HANG_BEFORE_COMMIT, seconds=seconds):
                await self._faults.hang(seconds)

    async def _strike_after_commit(self, fault: Fault | None) -> None:
        match fault:
            case Fault(fault=faults.DROP_AFTER_COMMIT):
                raise Dropped
            case Fault(fault=faults.HANG_AFTER_COMMIT, seconds=seconds):
                await self._faults.hang(seconds)

    def _cancel_refund(self, request: Request, parameters: Parameters, identifier: str) -> Answer:
        refuse_unknown(parameters, ())
        refund = refunds.retrieve(self._store, identifier)
        call = Call(key_of(request), request.path, canonical(parameters), request.id)
        with self._keys.claim(call) as kept:
            if kept is not None:
                return kept
            answer = refunds.not_cancelable(refund).answer
            with self._store.transaction() as db:
                self._keys.keep(db, call, answer)
            return answer

    async def _list_refunds(self, parameters: Parameters) -> Answer:
        page = Page.read(parameters)
        subjects = page.charge, page.payment_intent
        lag = self._faults.take(faults.LAG_LISTS, *subjects)
        match self._faults.take(faults.STRIKE_LISTS, *subjects):
            case Fault(fault=faults.HANG_LIST, seconds=seconds):
                await self._faults.hang(seconds)
            case Fault(fault=faults.ERROR_LIST):
                raise internal_error()
            case Fault(fault=faults.DROP_LIST):
                raise Dropped
        return Answer.of(refunds.list_page(self._store, page, not_younger_than=lag.seconds if lag else 0))


def _outcome(db: sqlite3.Connection, order: Order, call: Call, fault: str | None) -> Answer:
    if fault == faults.ERROR_BEFORE_COMMIT:
        return internal_error().answer
    if fault == faults.DECLINE:
        return card_declined().answer
    answer = refunds.attempt(db, order, key=call.key)
    return internal_error().answer if fault == faults.ERROR_AFTER_COMMIT else answer


def _read(request: Request) -> Parameters | ApiError:
    """The request's parameters, or why they cannot be read: the arrival is noted either way."""
    try:
        return parameters_of(request)
    except ApiError as refusal:
        return refusal


def _check_api_key(request: Request) -> None:
    """Bearer, or Basic with the key as user name, as Stripe documents under "Authentication"."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "bearer":
            api_key = credentials.strip()
        case "basic":
            api_key = _user_name(credentials.strip())
        case _:
            raise missing_api_key()
    if not api_key:
        raise missing_api_key()
    if not api_key.startswith(API_KEY_PREFIXES):
        raise unknown_api_key()


def _user_name(credentials: str) -> str:
    try:
        return base64.b64decode(credentials, validate=True).decode("ascii").partition(":")[0]
    except (binascii.Error, ValueError):
        return ""


def _echo(request: Request) -> dict[str, str]:
    """What Stripe repeats of a request in the headers of its answer."""
    key = request.headers.get("idempotency-key", "")
    return {"Request-Id": request.id} | ({"Idempotency-Key": key} if key and key.isprintable() else {})
