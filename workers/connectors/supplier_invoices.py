"""Payments of supplier invoices at an accounts-payable service that knows no idempotency keys but its own reference.

    {"url": "https://payables.example", "token_env": "SINK_PAYABLES_TOKEN"}

The service takes a pair of supplier and invoice number once (409 ``duplicate_invoice``), finds it again by that pair
and lists by time. Our key goes along in the memo, so that what we made can be told from what others entered.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from ledger.claims import Grant
from workers.connectors.answers import (
    Absent,
    Answer,
    Differs,
    Effect,
    Found,
    NotSent,
    Page,
    Receipt,
    Refused,
    SinkAway,
    Uncertain,
)
from workers.connectors.wire import (
    BadSetting,
    Said,
    address,
    ask,
    authorised,
    busy_or_uncertain,
    host_of,
    text_at,
)

_MEMO = "countersign:"
_PAGE = 100
_VOID = "void"


class SupplierInvoices:
    """Creates a payment per invoice and reads it back by supplier and number."""

    def identity(self, sink_settings: Mapping[str, Any]) -> str:
        """Host and port of the service. Raises BadSetting."""
        return host_of(address(sink_settings))

    def send(self, grant: Grant, *, timeout: float) -> Answer:
        """POST /payables; the memo carries the key."""
        order = {**json.loads(grant.body), "memo": f"{_MEMO}{grant.key}"}
        try:
            url, headers = _payables(grant.sink_settings), authorised(grant.sink_settings)
        except BadSetting as error:
            return NotSent(str(error))
        said = ask("POST", url, headers=headers, body=json.dumps(order).encode(), timeout=timeout)
        return _answer(said) if isinstance(said, Said) else said

    def look_up(self, grant: Grant, *, timeout: float) -> Found:
        """GET /payables by supplier and invoice number."""
        order = json.loads(grant.body)
        by = {"supplier": order["supplier"], "invoice": order["invoice"]}
        try:
            rows = _rows(grant.sink_settings, by, timeout)
        except (SinkAway, BadSetting) as error:
            return Uncertain(f"The look-up got no answer: {error}")
        mine = [row for row in rows if (row.get("supplier"), row.get("invoice")) == tuple(by.values())]
        if len(mine) != len(rows):
            return Uncertain("The look-up was answered with another invoice.")
        return _found(mine[0], order, grant.key) if mine else Absent()

    def list_effects(
        self,
        sink_settings: Mapping[str, Any],
        *,
        since: datetime,
        until: datetime,
        cursor: str | None,
        timeout: float,
    ) -> Page:
        """GET /payables by time, oldest first. Raises SinkAway."""
        by = {
            "since": since.astimezone(UTC).isoformat(),
            "until": until.astimezone(UTC).isoformat(),
            "limit": str(_PAGE),
            **({"after": cursor} if cursor else {}),
        }
        try:
            rows = _rows(sink_settings, by, timeout)
            effects = [_effect(row) for row in rows]
        except BadSetting as error:
            raise SinkAway(str(error)) from error
        except (KeyError, TypeError, ValueError) as error:
            raise SinkAway(f"The listing is not understood: {error!r}") from error
        return Page(effects, effects[-1].reference if len(rows) == _PAGE else None)


def _payables(sink_settings: Mapping[str, Any]) -> str:
    return f"{address(sink_settings).rstrip('/')}/payables"


def _rows(sink_settings: Mapping[str, Any], by: Mapping[str, str], timeout: float) -> list[dict[str, Any]]:
    url = f"{_payables(sink_settings)}?{urlencode(by)}"
    said = ask("GET", url, headers=authorised(sink_settings), timeout=timeout)
    if not isinstance(said, Said):
        raise SinkAway(said.note)
    rows = said.content.get("data") if isinstance(said.content, dict) else None
    if said.status != 200 or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SinkAway(f"answered with something else: {said.words}")
    return rows


def _answer(said: Said) -> Answer:
    if said.status in (200, 201):
        return _receipt(said.content) or Uncertain(f"{said.status}, and no reference in the answer.")
    if said.status in (400, 402, 404, 409, 422):
        return Refused(text_at(said.content, "/error/code") or f"http_{said.status}", said.words)
    return busy_or_uncertain(said)


def _receipt(row: Any) -> Receipt | None:
    reference = text_at(row, "/id")
    if reference is None:
        return None
    return Receipt(reference, text_at(row, "/status") or "entered", row, key=_key(row))


def _found(row: dict[str, Any], order: Mapping[str, Any], key: str) -> Found:
    """Ours where the memo has our key, or says nothing of ours and the content is what was ordered."""
    receipt = _receipt(row)
    if receipt is None:
        return Uncertain("The look-up found the invoice, and no reference with it.")
    if receipt.key not in (None, key):
        return Differs(receipt, f"{receipt.reference} was entered under another key of ours.")
    if (row.get("amount"), row.get("currency")) != (order["amount"], order["currency"]):
        amount = f"{row.get('amount')} {row.get('currency')}"
        return Differs(receipt, f"{receipt.reference} has this reference but another amount: {amount}.")
    return receipt


def _key(row: Mapping[str, Any]) -> str | None:
    memo = row.get("memo")
    return memo.removeprefix(_MEMO) if isinstance(memo, str) and memo.startswith(_MEMO) else None


def _effect(row: Mapping[str, Any]) -> Effect:
    amount = row["amount"]
    return Effect(
        reference=str(row["id"]),
        key=_key(row),
        amount_minor=amount if isinstance(amount, int) else None,
        currency=str(row["currency"]).upper(),
        status=str(row["status"]),
        reversed=row["status"] == _VOID,
        happened_at=datetime.fromisoformat(row["created"]),
    )
