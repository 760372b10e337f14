"""Refusals in Stripe's shapes.

Stripe documentation: "Errors" (the attributes), "Error codes" (the codes), "Advanced error handling"
(which status means what, and the `Stripe-Should-Retry` header).
"""

import math
from collections.abc import Mapping

from sandbox.wire import Answer


class ApiError(Exception):
    """A refusal that is answered: `{"error": {"type", "code", "message", "param"}}` under its HTTP status."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        decline_code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        named = {"code": code, "decline_code": decline_code, "param": param}
        present = {name: value for name, value in named.items() if value is not None}
        content = {"error": {"type": kind, "message": message, **present}}
        self.answer = Answer.of(content, status=status).with_headers(headers or {})


def invalid_request(
    message: str, *, code: str | None = None, param: str | None = None, status: int = 400
) -> ApiError:
    return ApiError(status, "invalid_request_error", message, code=code, param=param)


def missing_api_key() -> ApiError:
    message = (
        "You did not provide an API key. You need to provide your API key in the Authorization header, "
        "using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY')."
    )
    challenge = {"WWW-Authenticate": 'Basic realm="Sandbox"'}
    return ApiError(401, "invalid_request_error", message, headers=challenge)


def unknown_api_key() -> ApiError:
    """Never repeats the key: it may be a live one that strayed in here."""
    message = "Invalid API Key provided. The sandbox takes keys that begin with sk_sandbox_ or sk_test_."
    return ApiError(401, "invalid_request_error", message)


def unknown_url(method: str, path: str) -> ApiError:
    return invalid_request(f"Unrecognized request URL ({method}: {path}).", status=404)


def no_such(noun: str, identifier: str, *, param: str, status: int = 404) -> ApiError:
    message = f"No such {noun}: '{identifier}'"
    return invalid_request(message, code="resource_missing", param=param, status=status)


def key_with_other_parameters(key: str) -> ApiError:
    message = (
        "Keys for idempotent requests can only be used with the same parameters they were first used with. "
        f"Try using a key other than '{key}' if you meant to execute a different request."
    )
    return ApiError(400, "idempotency_error", message)


def key_on_another_path(key: str, path: str, first_path: str) -> ApiError:
    message = (
        "Keys for idempotent requests can only be used for the same endpoint they were first used for "
        f"('{path}' vs '{first_path}'). "
        f"Try using a key other than '{key}' if you meant to execute a different request."
    )
    return ApiError(400, "idempotency_error", message)


def key_in_use(key: str) -> ApiError:
    message = (
        "There is currently another in-progress request using this Idempotent Key (that probably means you "
        f"submitted twice, and the other request is still going through): {key}. Please try again later."
    )
    return ApiError(
        409,
        "invalid_request_error",
        message,
        code="idempotency_key_in_use",
        headers={"Stripe-Should-Retry": "true"},
    )


def rate_limited(seconds: float) -> ApiError:
    """Nothing was done; `Retry-After` is in whole seconds, as HTTP has it."""
    return ApiError(
        429,
        "invalid_request_error",
        "Request rate limit exceeded. Try again after the time given in Retry-After.",
        code="rate_limit",
        headers={"Retry-After": str(math.ceil(seconds)), "Stripe-Should-Retry": "true"},
    )


def card_declined() -> ApiError:
    return ApiError(
        402,
        "card_error",
        "Your card has insufficient funds.",
        code="card_declined",
        decline_code="insufficient_funds",
    )


def balance_insufficient() -> ApiError:
    """What a refund meets when the merchant's own balance cannot cover it: 400, not 402."""
    message = "Insufficient funds in your Stripe balance to refund this amount."
    return invalid_request(message, code="balance_insufficient")


def internal_error() -> ApiError:
    """Indeterminate, as Stripe says of its 500s; a repeat would be answered from storage, hence no retry."""
    return ApiError(
        500,
        "api_error",
        "An unknown error occurred.",
        headers={"Stripe-Should-Retry": "false"},
    )
