"""The provider: where requests, keys, faults and refunds meet.

The order of checks is Stripe's ("Advanced error handling"): API key, parameters, idempotency key, execution;
only what is answered after execution has begun is kept under the key.

One thread carries every request, and changes from one to another only where a fault makes it `await`: all
that lies between is indivisible, with no lock anywhere.
"""

import base64
import binascii
import hashlib
import json
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import actions, faults, payables, refunds
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
from sandbox.events import FAULTS as EVENT_FAULTS
from sandbox.events import Events
from sandbox.faults import Fault, Faults
from sandbox.forms import Json, Parameters, canonical, json_of, parameters_of, refuse_unknown
from sandbox.keys import Call, Keys, key_of
from sandbox.mail import Mail
from sandbox.refunds import Order, Page
from sandbox.store import Store
from sandbox.wire import Answer, Dropped, Request

API_KEY_PREFIXES = ("sk_sandbox_", "sk_test_")


Attempt = Callable[[sqlite3.Connection], Answer]
"""Makes the effect and answers it, or answers why not, in the transaction it is given."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a call asks for: the kind of effect, whom faults may mean by it, and how it is made."""

    kind: str
    subjects: tuple[str | None, ...]
    attempt: Attempt


class Provider:
    def __init__(self, database: Path, *, key_window: float, ignore_keys: bool = False) -> None:
        self._store = Store(database)
        self._ignore_keys = ignore_keys
        self._keys = Keys(self._store, window=key_window, ignored=ignore_keys)
        self._faults = Faults()
        self._events = Events()
        self._arrivals = Arrivals(self._store)
        self._control = Control(self._store, self._faults, self._events)
        self.mail = Mail(self._store, self._faults)

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

    async def close(self) -> None:
        await self._events.close()
        self._store.close()

    async def _api(self, request: Request, form: Any) -> Answer:
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
            case "GET", ["v1", "account"]:
                return Answer.of(_account(request))
            case "GET", ["v1", "charges", identifier]:
                return Answer.of(refunds.retrieve_charge(self._store, identifier))
            case _:
                return await self._other(request, form)

    async def _other(self, request: Request, form: Any) -> Answer:
        match request.method, request.segments:
            case "POST", ["payables"]:
                return await self._enter_payable(request, form)
            case "GET", ["payables"]:
                lag = await self._strike_list(payables.KIND, form.get("supplier"))
                return payables.listed(self._store, form, not_younger_than=lag)
            case "POST", ["actions"]:
                return await self._act(request, form)
            case "GET", ["actions"]:
                lag = await self._strike_list(actions.KIND)
                shown = actions.found if "key" in form else actions.listed
                return shown(self._store, form, not_younger_than=lag)
            case _:
                raise unknown_url(request.method, request.path)

    # What has an effect.

    async def _create_refund(self, request: Request, parameters: Parameters) -> Answer:
        order = Order.read(parameters)
        call = Call(key_of(request), request.path, canonical(parameters), request.id)
        subjects = order.charge, order.payment_intent
        work = Work("refund", subjects, lambda db: refunds.attempt(db, order, key=call.key))
        return await self._carry_out(call, work, made=self._announce)

    async def _enter_payable(self, request: Request, content: Json) -> Answer:
        order = payables.read(content)
        call = Call(None, request.path, canonical(content), request.id)  # this service knows no keys
        subjects = (str(order["supplier"]),)
        once = not self._ignore_keys
        work = Work(payables.KIND, subjects, lambda db: payables.enter(db, order, once=once))
        return await self._carry_out(call, work)

    async def _act(self, request: Request, content: Json) -> Answer:
        target, if_match = actions.target_of(content), request.headers.get("if-match")
        call = Call(key_of(request), request.path, canonical(content), request.id)
        work = Work(
            actions.KIND, (target,), lambda db: actions.act(db, content, key=call.key, if_match=if_match)
        )
        return await self._carry_out(call, work)

    async def _carry_out(
        self, call: Call, work: Work, made: Callable[[Answer, Work], Awaitable[None]] | None = None
    ) -> Answer:
        with self._keys.claim(call) as kept:
            strikes = faults.STRIKE_EXECUTIONS if kept is None else faults.STRIKE_REPLAYS
            fault = self._faults.take(strikes, *work.subjects, kind=work.kind)
            await self._strike_before_commit(fault, call)
            answer = kept or self._execute(work, call, fault)
            if kept is None and made is not None:
                await made(answer, work)
            await self._strike_after_commit(fault)
            return answer

    def _execute(self, work: Work, call: Call, fault: Fault | None) -> Answer:
        """The effect and the answer kept under the key are one transaction: a kill leaves both or neither."""
        with self._store.transaction() as db:
            answer = _outcome(db, work, fault.fault if fault else None)
            self._keys.keep(db, call, answer)
        return answer

    async def _announce(self, answer: Answer, work: Work) -> None:
        if answer.status == 200:
            fault = self._faults.take(EVENT_FAULTS, *work.subjects, kind=work.kind)
            await self._events.announce(json.loads(answer.body), fault)

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

    # What has none.

    async def _list_refunds(self, parameters: Parameters) -> Answer:
        page = Page.read(parameters)
        lag = await self._strike_list("refund", page.charge, page.payment_intent)
        return Answer.of(refunds.list_page(self._store, page, not_younger_than=lag))

    async def _strike_list(self, kind: str, *subjects: str | None) -> float:
        """How many seconds the records lag behind, once no fault stands in the way of showing them."""
        lag = self._faults.take(faults.LAG_LISTS, *subjects, kind=kind)
        match self._faults.take(faults.STRIKE_LISTS, *subjects, kind=kind):
            case Fault(fault=faults.HANG_LIST, seconds=seconds):
                await self._faults.hang(seconds)
            case Fault(fault=faults.ERROR_LIST):
                raise internal_error()
            case Fault(fault=faults.DROP_LIST):
                raise Dropped
        return lag.seconds if lag else 0.0


def _outcome(db: sqlite3.Connection, work: Work, fault: str | None) -> Answer:
    if fault == faults.ERROR_BEFORE_COMMIT:
        return internal_error().answer
    if fault == faults.DECLINE:
        return card_declined().answer
    answer = work.attempt(db)
    return internal_error().answer if fault == faults.ERROR_AFTER_COMMIT else answer


def _read(request: Request) -> Parameters | Json | ApiError:
    """The request's parameters, or why they cannot be read: the arrival is noted either way."""
    try:
        if request.method == "POST" and request.segments[:1] in (["payables"], ["actions"]):
            return json_of(request)
        return parameters_of(request)
    except ApiError as refusal:
        return refusal


def _account(request: Request) -> Json:
    """Every API key is of an account of its own here."""
    digest = hashlib.sha256(_api_key(request).encode()).hexdigest()
    return {"id": f"acct_{digest[:16]}", "object": "account"}


def _check_api_key(request: Request) -> None:
    api_key = _api_key(request)
    if not api_key:
        raise missing_api_key()
    if not api_key.startswith(API_KEY_PREFIXES):
        raise unknown_api_key()


def _api_key(request: Request) -> str:
    """Bearer, or Basic with the key as user name, as Stripe documents under "Authentication"; empty: neither."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "bearer":
            return credentials.strip()
        case "basic":
            return _user_name(credentials.strip())
    return ""


def _user_name(credentials: str) -> str:
    try:
        return base64.b64decode(credentials, validate=True).decode("ascii").partition(":")[0]
    except (binascii.Error, ValueError):
        return ""


def _echo(request: Request) -> dict[str, str]:
    """What Stripe repeats of a request in the headers of its answer."""
    key = request.headers.get("idempotency-key", "")
    return {"Request-Id": request.id} | ({"Idempotency-Key": key} if key and key.isprintable() else {})
