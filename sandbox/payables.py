"""Supplier payments: an accounts-payable service that has never heard of keys, and takes each invoice once.

A pair of supplier and invoice number is unique; a second one is refused with 409 `duplicate_invoice`. Payments are
found again by that pair, and listed by time, oldest first.
"""

import sqlite3
import time
from collections.abc import Mapping

from sandbox import effects
from sandbox.errors import invalid_request
from sandbox.forms import Parameters, integer, moment, refuse_unknown, text
from sandbox.store import Store
from sandbox.wire import Answer, to_json

KIND = "payable"
MARK = "countersign:"  # a memo that begins so carries the caller's own key
MOST_MINOR = 10**12


def read(content: Mapping[str, object]) -> dict[str, object]:
    """The payment asked for, found valid; nothing has happened yet."""
    refuse_unknown(content, ("supplier", "invoice", "amount", "currency", "memo"))
    for name in ("supplier", "invoice", "currency"):
        value = content.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= 100:
            raise invalid_request(f"{name} is a string of 1 to 100 characters.", param=name, status=422)
    amount = content.get("amount")
    if type(amount) is not int or not 0 < amount <= MOST_MINOR:
        raise invalid_request("amount is a whole number of minor units.", param="amount", status=422)
    return dict(content)


def key_in(content: Mapping[str, object]) -> str | None:
    memo = content.get("memo")
    return memo.removeprefix(MARK) if isinstance(memo, str) and memo.startswith(MARK) else None


def enter(db: sqlite3.Connection, content: dict[str, object], *, once: bool) -> Answer:
    """Enter the payment, or refuse its invoice as one that is there already."""
    number = to_json([content["supplier"], content["invoice"]])
    try:
        row = effects.make(
            db,
            kind=KIND,
            prefix="pay",
            key=key_in(content),
            subject=str(content["supplier"]),
            parameters={**content, "status": "entered"},
            once=number if once else None,
        )
    except sqlite3.IntegrityError:
        message = f"Invoice {content['invoice']} of {content['supplier']} has been entered already."
        return invalid_request(message, code="duplicate_invoice", status=409).answer
    return Answer.of(effects.shown(row), status=201)


def listed(store: Store, parameters: Parameters, *, not_younger_than: float = 0) -> Answer:
    """By supplier and invoice, by time, after an id; effects younger than so many seconds are not shown."""
    refuse_unknown(parameters, ("supplier", "invoice", "since", "until", "after", "limit"))
    rows = store.rows(
        LISTED,
        {
            "kind": KIND,
            "supplier": text(parameters, "supplier"),
            "invoice": text(parameters, "invoice"),
            "since": moment(parameters, "since"),
            "until": moment(parameters, "until"),
            "after": text(parameters, "after"),
            "visible": time.time() - not_younger_than,
            "limit": min(integer(parameters, "limit", least=1) or 100, 100),
        },
    )
    return Answer.of({"data": [effects.shown(row) for row in rows]})


LISTED = """
SELECT * FROM effects
WHERE kind = :kind AND created <= :visible
  AND (:supplier IS NULL OR charge = :supplier)
  AND (:invoice IS NULL OR parameters ->> 'invoice' = :invoice)
  AND (:since IS NULL OR created >= :since) AND (:until IS NULL OR created <= :until)
  AND (:after IS NULL OR sequence > (SELECT sequence FROM effects WHERE id = :after))
ORDER BY sequence LIMIT :limit
"""
