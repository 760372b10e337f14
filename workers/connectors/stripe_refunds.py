"""Refunds at Stripe, through the official SDK, with its own retries off: one attempt is one request.

Relies on what Stripe documents under "Idempotent requests" (the first answer is stored under the key, 500 included;
other parameters are refused; keys are kept for at least 24 hours) and "Errors". Look-ups list the charge's refunds
and compare the key in the metadata: a search index may lag, and never proves absence.

    {"account": "acct_1A2b"}     optional: only a key of this account is used ("Retrieve account", GET /v1/account)
"""

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import stripe
from django.conf import settings

from ledger.claims import Grant
from workers.connectors.answers import (
    Absent,
    Answer,
    Busy,
    Differs,
    Effect,
    Found,
    InProgress,
    NotSent,
    Page,
    Receipt,
    Refused,
    SinkAway,
    Uncertain,
    Undone,
)
from workers.connectors.expected import Expected
from workers.connectors.stripe_wire import DirectClient, NotConnected, left, within

_KEY_IN_METADATA = "countersign_key"
_PAGE = 100
_NO_EFFECT = ("failed", "canceled")
_NOT_UNDERSTOOD = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What the SDK and we stumble over in an answer that is not as documented."""


class StripeRefunds:
    """Creates refunds and finds them again. ``base_url`` is Stripe's, or the sandbox provider's."""

    def __init__(self, *, api_key: str, base_url: str | None) -> None:
        self._base_url = base_url
        self._http = DirectClient()
        addresses: Any = {"api": base_url} if base_url else None
        # Made once: each takes milliseconds, and it keeps nothing of a call.
        self._client = stripe.StripeClient(
            api_key, base_addresses=addresses, max_network_retries=0, http_client=self._http
        )
        self._account = Expected("account", self._ask_account)

    @classmethod
    def from_settings(cls) -> "StripeRefunds":
        """Stripe when a key of Stripe's is configured, else the sandbox."""
        if settings.STRIPE_API_KEY:
            return cls(api_key=settings.STRIPE_API_KEY, base_url=None)
        return cls(api_key="sk_sandbox_demo", base_url=settings.SANDBOX_URL)

    def close(self) -> None:
        """Ends its connections."""
        self._http.close()

    def identity(self, sink_settings: Mapping[str, Any]) -> str:
        """The host that refunds go to, and the account where the settings name it. Raises BadSetting."""
        account = self._account.named(sink_settings)
        host = urlsplit(self._base_url or stripe.DEFAULT_API_BASE).netloc
        return f"{host}/{account}" if account else host

    def send(self, grant: Grant, *, timeout: float) -> Answer:
        """POST /v1/refunds under the grant's key."""
        with within(timeout):
            if (why := self._account.why_not(grant.sink_settings, timeout)) is not None:
                return NotSent(why)
            if left() <= 0:  # asking has taken it
                return NotSent("The time for the call was over before the request could leave.")
            return self._create(grant)

    def _create(self, grant: Grant) -> Answer:
        order = json.loads(grant.body)
        order["currency"] = order["currency"].lower()
        parameters: Any = {**order, "metadata": {_KEY_IN_METADATA: grant.key}}
        try:
            refund = self._client.v1.refunds.create(parameters, {"idempotency_key": grant.key})
            made = refund.to_dict()
            why = _undone(made)
            return _receipt(made) if why is None else Uncertain(why)
        except stripe.StripeError as error:
            return _answer_for(error)
        except _NOT_UNDERSTOOD as error:
            return Uncertain(f"The answer is not understood: {error!r}")

    def look_up(self, grant: Grant, *, timeout: float) -> Found:
        """Lists the charge's refunds, all pages, for the one whose metadata has this key."""
        with within(timeout):
            if (why := self._account.why_not(grant.sink_settings, timeout)) is not None:
                return Uncertain(why)
            return self._find(grant)

    def _find(self, grant: Grant) -> Found:
        order = json.loads(grant.body)
        try:
            for refund in self._refunds_of(order["charge"]):
                if _key(refund) == grant.key:
                    return _found(refund, order)
        except stripe.StripeError as error:
            return Uncertain(f"The look-up got no answer: {_words(error)}")
        except _NOT_UNDERSTOOD as error:
            return Uncertain(f"The look-up is not understood: {error!r}")
        return Absent()

    def _refunds_of(self, charge: str) -> Iterator[dict[str, Any]]:
        page = self._client.v1.refunds.list({"charge": charge, "limit": _PAGE})
        for refund in page.auto_paging_iter():
            yield refund.to_dict()

    def list_effects(
        self,
        sink_settings: Mapping[str, Any],
        *,
        since: datetime,
        until: datetime,
        cursor: str | None,
        timeout: float,
    ) -> Page:
        """Refunds created in this time, which Stripe lists newest first. Raises SinkAway.

        The cursor is the last refund seen: one that is made meanwhile comes before it, and is younger than ``until``.
        """
        created = {"gte": math.floor(since.timestamp()), "lte": math.ceil(until.timestamp())}
        asked: Any = {"created": created, "limit": _PAGE, **({"starting_after": cursor} if cursor else {})}
        try:
            with within(timeout):
                self._account.require(sink_settings, timeout)
                page = self._client.v1.refunds.list(asked)
            effects = [_effect(refund.to_dict()) for refund in page.data]
        except stripe.StripeError as error:
            raise SinkAway(f"The listing got no answer: {_words(error)}") from error
        except _NOT_UNDERSTOOD as error:
            raise SinkAway(f"The listing is not understood: {error!r}") from error
        return Page(effects, effects[-1].reference if page.has_more and effects else None)

    def _ask_account(self, _timeout: float) -> str:
        """The account that the API key is of. Raises SinkAway."""
        try:
            return str(self._client.v1.accounts.retrieve_current().id)
        except stripe.StripeError as error:
            raise SinkAway(f"The account could not be asked: {_words(error)}") from error
        except _NOT_UNDERSTOOD as error:
            raise SinkAway(f"The account is not understood: {error!r}") from error


def _found(refund: dict[str, Any], order: dict[str, Any]) -> Found:
    if (why := _undone(refund)) is not None:
        return Undone(_receipt(refund), why)
    found, ordered = (refund["amount"], refund["currency"]), (order["amount"], order["currency"].lower())
    if found != ordered:
        note = f"{refund['id']} carries this key but another amount: {found[0]} {found[1]}."
        return Differs(_receipt(refund), note)
    return _receipt(refund)


def _undone(refund: dict[str, Any]) -> str | None:
    """Why the refund does not stand, or None."""
    if refund["status"] not in _NO_EFFECT:
        return None
    return f"The provider made {refund['id']}, and says it {refund['status']}."


def _receipt(refund: dict[str, Any]) -> Receipt:
    kept = ("id", "object", "amount", "currency", "charge", "status", "created")
    return Receipt(
        reference=refund["id"],
        status=refund["status"],
        answer={name: refund[name] for name in kept if name in refund},
        key=_key(refund),
    )


def _key(refund: dict[str, Any]) -> str | None:
    metadata = refund["metadata"] or {}
    key = metadata.get(_KEY_IN_METADATA)
    return key if isinstance(key, str) else None


def _effect(refund: dict[str, Any]) -> Effect:
    return Effect(
        reference=refund["id"],
        key=_key(refund),
        amount_minor=refund["amount"],
        currency=refund["currency"].upper(),
        status=refund["status"],
        reversed=refund["status"] in _NO_EFFECT,
        happened_at=datetime.fromtimestamp(refund["created"], UTC),
    )


def _answer_for(error: stripe.StripeError) -> Answer:
    """What an error of the SDK proves. Only what the documentation calls definite is taken as definite."""
    words = _words(error)
    if isinstance(error, stripe.APIConnectionError):
        return NotSent(words) if isinstance(error, NotConnected) else Uncertain(words)
    if isinstance(error, stripe.RateLimitError):
        return Busy(words, retry_after=_retry_after(error))
    if isinstance(error, stripe.AuthenticationError | stripe.PermissionError):
        return Busy(words)
    if isinstance(error, stripe.IdempotencyError):
        return Uncertain(f"The key stands for other parameters at the provider: {words}", stored=True)
    if error.http_status == 409:
        return InProgress(words)
    if isinstance(error, stripe.CardError | stripe.InvalidRequestError):
        return Refused(error.code or "refused", words)
    replayed = str((error.headers or {}).get("idempotent-replayed", "")).lower() == "true"
    return Uncertain(words, stored=replayed)


def _retry_after(error: stripe.StripeError) -> float | None:
    value = str((error.headers or {}).get("retry-after", ""))
    return float(value) if value.isascii() and value.isdigit() else None


def _words(error: stripe.StripeError) -> str:
    status = f"{error.http_status}: " if error.http_status else ""
    return f"{status}{error.user_message or error}"
