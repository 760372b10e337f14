"""Refunds and the charges they are made on.

Stripe documentation: "Create a refund", "Retrieve a refund", "List all refunds", "Cancel a refund",
"Pagination", "Metadata". A charge needs no prior existence: the first refund on it brings it about, with a
balance no test will exhaust. On a charge whose id begins with `ch_insufficient` the merchant's own balance
is empty.
"""

import json
import secrets
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.errors import ApiError, balance_insufficient, invalid_request, no_such
from sandbox.forms import Parameters, integer, parse_integer, refuse_unknown, text
from sandbox.store import Store
from sandbox.wire import Answer, to_json

AMPLE = 10**12  # minor units on every charge: also the largest single refund
REASONS = ("duplicate", "fraudulent", "requested_by_customer")
POOR_CHARGE = "ch_insufficient"

MAX_METADATA, LONGEST_METADATA_NAME, LONGEST_METADATA_VALUE = 50, 40, 500

Refund = dict[str, object]


@dataclass(frozen=True, slots=True)
class Order:
    """A refund asked for, read and found valid; nothing has happened yet."""

    charge: str
    payment_intent: str | None
    amount: int | None
    currency: str | None
    reason: str | None
    metadata: dict[str, str]
    parameters: str

    @classmethod
    def read(cls, parameters: Parameters) -> "Order":
        known = ("charge", "payment_intent", "amount", "currency", "reason", "metadata")
        refuse_unknown(parameters, known)
        charge, payment_intent = _charge_and_payment_intent(parameters)
        amount = integer(parameters, "amount", least=1)
        sent = parameters if amount is None else {**parameters, "amount": amount}
        return cls(
            charge=charge,
            payment_intent=payment_intent,
            amount=amount,
            currency=_currency(parameters),
            reason=_reason(parameters),
            metadata=_metadata(parameters),
            parameters=to_json(sent),
        )


def charge_of(parameters: Mapping[str, object]) -> str | None:
    """The charge that parameters speak of, whichever way they name it; of other services, what stands for it."""
    named = [parameters.get(name) for name in ("charge", "supplier", "target")]
    charge = next((each for each in named if isinstance(each, str)), None)
    payment_intent = parameters.get("payment_intent")
    if charge is not None:
        return charge
    return _charge_paid_by(payment_intent) if isinstance(payment_intent, str) else None


def attempt(db: sqlite3.Connection, order: Order, *, key: str | None) -> Answer:
    """Make the refund and answer it, or answer why the charge or the balance refuses it, nothing done."""
    try:
        return Answer.of(create(db, order, key=key))
    except ApiError as refusal:
        return refusal.answer


def create(db: sqlite3.Connection, order: Order, *, key: str | None) -> Refund:
    if order.charge.startswith(POOR_CHARGE):
        raise balance_insufficient()
    amount, currency = _take_from_charge(db, order)
    row = db.execute(
        "INSERT INTO refunds (id, idempotency_key, charge, payment_intent, amount, currency, reason,"
        " metadata, parameters, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING *",
        (
            f"re_{secrets.token_hex(12)}",
            key,
            order.charge,
            order.payment_intent,
            amount,
            currency,
            order.reason,
            to_json(order.metadata),
            order.parameters,
            time.time(),
        ),
    ).fetchone()
    return _refund(row)


def retrieve(store: Store, identifier: str) -> Refund:
    rows = store.rows("SELECT * FROM refunds WHERE id = ?", (identifier,))
    if not rows:
        raise no_such("refund", identifier, param="id")
    return _refund(rows[0])


def not_cancelable(refund: Refund) -> ApiError:
    """Only a refund that waits for its customer can be cancelled, and none here ever does."""
    message = f"Refund {refund['id']} has succeeded: only a refund that requires action can be canceled."
    return invalid_request(message, param="id")


def retrieve_charge(store: Store, identifier: str) -> dict[str, object]:
    """Any charge can be looked at; one never refunded is as it would be before its first refund."""
    rows = store.rows("SELECT currency, amount, refunded FROM charges WHERE id = ?", (identifier,))
    currency, amount, refunded = rows[0] if rows else ("usd", AMPLE, 0)
    return {
        "id": identifier,
        "object": "charge",
        "amount": amount,
        "amount_refunded": refunded,
        "currency": currency,
        "livemode": False,
        "refunded": refunded == amount,
        "status": "succeeded",
    }


# --- listing ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Page:
    """Which refunds to list. The cursor is a refund, not an offset: what arrives meanwhile shifts nothing."""

    charge: str | None
    payment_intent: str | None
    created: tuple[tuple[str, int], ...]
    limit: int
    starting_after: str | None
    ending_before: str | None

    @classmethod
    def read(cls, parameters: Parameters) -> "Page":
        known = ("charge", "payment_intent", "created", "limit", "starting_after", "ending_before")
        refuse_unknown(parameters, known)
        starting_after = text(parameters, "starting_after")
        ending_before = text(parameters, "ending_before")
        if starting_after and ending_before:
            raise _exclusive("starting_after", "ending_before")
        return cls(
            charge=text(parameters, "charge"),
            payment_intent=text(parameters, "payment_intent"),
            created=_created(parameters),
            limit=_limit(parameters),
            starting_after=starting_after,
            ending_before=ending_before,
        )


def list_page(store: Store, page: Page, *, not_younger_than: float = 0) -> dict[str, object]:
    """One page, newest first; effects younger than `not_younger_than` seconds are not shown."""
    conditions: list[tuple[str, object]] = list(page.created)
    if page.charge:
        conditions.append(("charge = ?", page.charge))
    if page.payment_intent:
        conditions.append(("payment_intent = ?", page.payment_intent))
    if page.starting_after:
        conditions.append(("sequence < ?", _sequence(store, page.starting_after, "starting_after")))
    if page.ending_before:
        conditions.append(("sequence > ?", _sequence(store, page.ending_before, "ending_before")))
    if not_younger_than > 0:
        conditions.append(("created <= ?", time.time() - not_younger_than))
    where = " AND ".join(condition for condition, _ in conditions) or "TRUE"
    order = "ASC" if page.ending_before else "DESC"
    rows = store.rows(  # conditions are ours, values are bound; spelt out so that the indexes are used
        f"SELECT * FROM refunds WHERE {where} ORDER BY sequence {order} LIMIT ?",  # noqa: S608
        [*(value for _, value in conditions), page.limit + 1],
    )
    shown = rows[: page.limit]
    return {
        "object": "list",
        "url": "/v1/refunds",
        "has_more": len(rows) > page.limit,
        "data": [_refund(row) for row in (reversed(shown) if page.ending_before else shown)],
    }


def _created(parameters: Parameters) -> tuple[tuple[str, int], ...]:
    """The filter on whole seconds: an exact one, or any of gt, gte, lt, lte."""
    comparisons = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
    created = parameters.get("created", {})
    if isinstance(created, str):
        return (("CAST(created AS INTEGER) = ?", parse_integer(created, "created")),)
    refuse_unknown(created, comparisons)
    return tuple(
        (f"CAST(created AS INTEGER) {comparisons[name]} ?", parse_integer(value, f"created[{name}]"))
        for name, value in created.items()
    )


def _limit(parameters: Parameters) -> int:
    limit = integer(parameters, "limit", least=1)
    if limit is not None and limit > 100:
        raise invalid_request("Limit must be between 1 and 100.", param="limit")
    return limit or 10


def _sequence(store: Store, identifier: str, param: str) -> int:
    rows = store.rows("SELECT sequence FROM refunds WHERE id = ?", (identifier,))
    if not rows:
        raise no_such("refund", identifier, param=param, status=400)
    return int(rows[0]["sequence"])


# --- reading an order ------------------------------------------------------------------------------------


def _charge_and_payment_intent(parameters: Parameters) -> tuple[str, str | None]:
    charge, payment_intent = text(parameters, "charge"), text(parameters, "payment_intent")
    if charge and payment_intent:
        raise _exclusive("charge", "payment_intent")
    if charge:
        return charge, None
    if payment_intent:
        return _charge_paid_by(payment_intent), payment_intent
    message = "One of the following params should be provided for this request: payment_intent or charge."
    raise invalid_request(message, code="parameter_missing", param="charge")


def _charge_paid_by(payment_intent: str) -> str:
    return f"ch_{payment_intent.removeprefix('pi_')}"


def _currency(parameters: Parameters) -> str | None:
    currency = text(parameters, "currency")
    if currency is None:
        return None
    if not (len(currency) == 3 and currency.isascii() and currency.isalpha()):
        raise invalid_request(f"Invalid currency: {currency[:40]}", param="currency")
    return currency.lower()


def _reason(parameters: Parameters) -> str | None:
    reason = text(parameters, "reason")
    if reason is not None and reason not in REASONS:
        message = f"Invalid reason: must be one of {', '.join(REASONS[:-1])}, or {REASONS[-1]}"
        raise invalid_request(message, param="reason")
    return reason


def _metadata(parameters: Parameters) -> dict[str, str]:
    metadata = parameters.get("metadata") or {}
    if isinstance(metadata, str):
        raise invalid_request("Invalid hash: metadata", param="metadata")
    if len(metadata) > MAX_METADATA:
        raise invalid_request(f"Metadata can have at most {MAX_METADATA} keys.", param="metadata")
    for name, value in metadata.items():
        if len(name) > LONGEST_METADATA_NAME or len(value) > LONGEST_METADATA_VALUE:
            message = (
                f"Metadata keys have at most {LONGEST_METADATA_NAME} characters, "
                f"values at most {LONGEST_METADATA_VALUE}."
            )
            raise invalid_request(message, param=f"metadata[{name[:LONGEST_METADATA_NAME]}]")
    return {name: value for name, value in metadata.items() if value}


def _exclusive(one: str, other: str) -> ApiError:
    message = f"You may only specify one of these parameters: {one}, {other}."
    return invalid_request(message, code="parameters_exclusive", param=other)


# --- making it -------------------------------------------------------------------------------------------


def _take_from_charge(db: sqlite3.Connection, order: Order) -> tuple[int, str]:
    """Move the amount from the charge to its refunds, in one statement; answer it with its currency."""
    amount = order.amount or _left_on(db, order.charge)
    try:
        row = db.execute(
            "INSERT INTO charges (id, currency, amount, refunded)"
            " VALUES (:charge, coalesce(:currency, 'usd'), :ample, :refunded)"
            " ON CONFLICT (id) DO UPDATE SET refunded = refunded + excluded.refunded"
            " WHERE currency = coalesce(:currency, currency)"
            " RETURNING currency",
            {"charge": order.charge, "currency": order.currency, "ample": AMPLE, "refunded": amount},
        ).fetchone()
    except sqlite3.IntegrityError as refused:  # never_refunded_beyond_its_amount
        raise _too_much(order, amount, left=_left_on(db, order.charge)) from refused
    if row is None:
        raise invalid_request(f"The charge {order.charge} is in another currency.", param="currency")
    return amount, row["currency"]


def _left_on(db: sqlite3.Connection, charge: str) -> int:
    row = db.execute("SELECT amount - refunded AS remains FROM charges WHERE id = ?", (charge,)).fetchone()
    return int(row["remains"]) if row else AMPLE


def _too_much(order: Order, amount: int, *, left: int) -> ApiError:
    if left == 0:
        message = f"Charge {order.charge} has already been refunded."
        return invalid_request(message, code="charge_already_refunded", param="charge")
    message = f"Refund amount ({amount}) is greater than unrefunded amount on charge ({left})."
    return invalid_request(message, param="amount")


def _refund(row: sqlite3.Row) -> Refund:
    return {
        "id": row["id"],
        "object": "refund",
        "amount": row["amount"],
        "balance_transaction": f"txn_{row['id'].removeprefix('re_')}",
        "charge": row["charge"],
        "created": int(row["created"]),
        "currency": row["currency"],
        "metadata": json.loads(row["metadata"]),
        "payment_intent": row["payment_intent"],
        "reason": row["reason"],
        "receipt_number": None,
        "source_transfer_reversal": None,
        "status": "succeeded",
        "transfer_reversal": None,
    }
