"""Requests the interface itself refuses, before any act. The docstring is the message; each says what to do next."""

from ledger.schemas import Fault


class RequestRefused(Exception):
    """The request cannot be understood. Compare it with the documentation of this call."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class MalformedBody(RequestRefused):
    """The body is not JSON as RFC 7493 asks for. Send one JSON value in UTF-8, each member name once."""


class BodyTooLarge(RequestRefused):
    """The body is over 262144 bytes. Put long evidence where the reviewer can open it, and name the place."""


class InvalidRequest(RequestRefused):
    """A member of the body is missing, unknown or not of its form. `errors` says which and why."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__()
        self.faults = faults


class InvalidQuery(RequestRefused):
    """A query parameter is unknown or not of its form. `errors` says which and why."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__()
        self.faults = faults


class MalformedCursor(RequestRefused):
    """The cursor is not one this list gave out. Follow `next` as it stands, or start again without a cursor."""


class ForgedForm(RequestRefused):
    """The CSRF token is missing or not this session's. Reload the page and send it again with its token."""
