"""The one map from errors to HTTP statuses, for API and pages alike, and how each of them says so.

The API answers with problem details (RFC 9457); their ``type`` leads to the error's section of docs/errors.md.
"""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import BadRequest, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.template.loader import select_template
from rest_framework.exceptions import (
    AuthenticationFailed,
    MethodNotAllowed,
    NotAuthenticated,
    UnsupportedMediaType,
)

from approvals import differences, representations
from approvals import errors as refusals
from approvals.api import errors as requests
from approvals.errors import Refusal
from approvals.tags import MalformedPrecondition, PreconditionRequired, tag_of
from ledger.operations import FingerprintConflict
from ledger.schemas import Fault
from ledger.tools import UnknownTool

log = logging.getLogger(__name__)

DOCUMENTATION = "/docs/errors"
_MOST_FAULTS = 50  # listed in one answer
_LONGEST_DETAIL = 500  # characters; a schema's own words can quote the whole of what it refuses
_RETRY_AFTER = 5  # seconds; a database that went away is back in a few, or not soon


@dataclass(frozen=True, slots=True)
class Problem:
    """How an error is answered. ``name`` is what ``type`` ends in, for good; ``detail`` is for errors not ours."""

    status: int
    name: str
    title: str
    detail: str = ""

    @property
    def type(self) -> str:
        """The URI reference of the problem's type: where it is explained."""
        return f"{DOCUMENTATION}#{self.name}"


_AWAY = Problem(
    503,
    "unavailable",
    "The database is away",
    # Not "nothing was written": the answer to a COMMIT can be what got lost.
    "Nothing is half done. Send the same call again in a moment: what was done is answered, not done twice.",
)
_BROKEN = Problem(
    500,
    "internal-error",
    "Something went wrong here",
    "We do not know whether what you asked for was recorded. Read the case before you try again.",
)

PROBLEMS: Mapping[type[Exception], Problem] = {
    # The request
    requests.MalformedBody: Problem(400, "malformed-body", "The body is not JSON"),
    requests.InvalidQuery: Problem(400, "invalid-query", "The query is not of this call"),
    requests.MalformedCursor: Problem(400, "malformed-cursor", "The cursor is not of this list"),
    MalformedPrecondition: Problem(400, "malformed-precondition", "If-Match is not one entity tag"),
    SuspiciousOperation: Problem(
        400,
        "bad-request",
        "The request was not understood",
        "Nothing was written. Check host, address and headers.",
    ),
    BadRequest: Problem(
        400, "bad-request", "The request was not understood", "Nothing was written. Check address and fields."
    ),
    MultiPartParserError: Problem(
        400,
        "bad-request",
        "The request was not understood",
        "Nothing was written. The form is not well-formed.",
    ),
    UnreadablePostError: Problem(
        400, "bad-request", "The request was not understood", "The body ended before its announced length."
    ),
    NotAuthenticated: Problem(
        401,
        "unauthenticated",
        "No key and no session",
        "Send one of your agent's keys as a Bearer token, or sign in.",
    ),
    AuthenticationFailed: Problem(
        401,
        "unauthenticated",
        "No such key",
        "It is not one of ours, was revoked or has expired. Ask for a new one.",
    ),
    requests.ForgedForm: Problem(403, "csrf-failed", "The CSRF token is not this session's"),
    PermissionDenied: Problem(
        403,
        "not-permitted",
        "You may not do this",
        "Your role does not allow this. Ask an admin of your organisation.",
    ),
    Http404: Problem(
        404,
        "not-found",
        "There is no such thing",
        "Nothing is at this address. Check it, or list what you can see.",
    ),
    MethodNotAllowed: Problem(
        405,
        "method-not-allowed",
        "Not a method of this address",
        "`Allow` names the methods this address has.",
    ),
    requests.BodyTooLarge: Problem(413, "body-too-large", "The body is too large"),
    RequestDataTooBig: Problem(
        413, "body-too-large", "The body is too large", str(requests.BodyTooLarge.__doc__)
    ),
    UnsupportedMediaType: Problem(
        415, "unsupported-media-type", "The body is not JSON", "Send it as application/json, in UTF-8."
    ),
    requests.InvalidRequest: Problem(422, "invalid-request", "The body is not of this call's form"),
    PreconditionRequired: Problem(428, "precondition-required", "If-Match is missing"),
    # Who may
    refusals.NotPermitted: Problem(403, "not-permitted", "You may not do this"),
    refusals.PersonRequired: Problem(403, "person-required", "Only a person decides"),
    refusals.SelfApproval: Problem(403, "self-approval", "Somebody else has to decide this"),
    refusals.NotFound: Problem(404, "not-found", "There is no such thing"),
    # The state
    refusals.StateForbids: Problem(409, "state-forbids", "The case's state does not allow this"),
    refusals.AlreadyDecided: Problem(409, "already-decided", "The case is decided already"),
    refusals.InProgress: Problem(409, "in-progress", "It is being carried out"),
    refusals.AlreadyExecuted: Problem(409, "already-executed", "It has happened already"),
    refusals.ContentRemoved: Problem(409, "content-removed", "The case's content was removed"),
    refusals.DeadlinePassed: Problem(409, "deadline-passed", "The deadline has passed"),
    refusals.Disputed: Problem(409, "disputed", "Ledger and sink disagree about this case"),
    refusals.EarlierOperationLive: Problem(
        409, "earlier-operation-live", "An earlier operation may still take effect"
    ),
    refusals.NotPossibleYet: Problem(409, "not-possible-yet", "This cannot be said of it now"),
    refusals.CannotBeAsked: Problem(409, "cannot-be-asked", "This sink cannot be asked"),
    refusals.UndoneAlready: Problem(409, "undone-already", "Another case undoes this effect"),
    refusals.NotCompensable: Problem(409, "not-compensable", "There is no proven effect to undo"),
    refusals.ReferenceTaken: Problem(409, "reference-taken", "The reference is another operation's"),
    refusals.SecondPersonNeeded: Problem(409, "second-person-needed", "Somebody else has to say the same"),
    # The content
    UnknownTool: Problem(422, "unknown-tool", "There is no such write tool"),
    refusals.InvalidContent: Problem(422, "invalid-content", "The content is not valid"),
    refusals.ReasonRequired: Problem(422, "reason-required", "A reason is missing"),
    refusals.EvidenceRequired: Problem(422, "evidence-required", "What the word rests on is missing"),
    refusals.ReferenceRequired: Problem(422, "reference-required", "The sink's reference is missing"),
    refusals.AmountMismatch: Problem(422, "amount-mismatch", "The typed amount is another one"),
    # The others
    refusals.ConflictingProposal: Problem(
        409, "conflicting-proposal", "This action is proposed already, with other parameters"
    ),
    FingerprintConflict: Problem(409, "fingerprint-conflict", "This identity stands for other content"),
    refusals.OperationMoved: Problem(412, "operation-moved", "The operation is no longer what you saw"),
    refusals.VersionConflict: Problem(412, "version-conflict", "The case is no longer what you saw"),
    # Us
    OperationalError: _AWAY,
    InterfaceError: _AWAY,
}


def problem_of(error: BaseException | type[BaseException]) -> Problem | None:
    """How this error, or one of this class, is answered; None for one that is a fault of ours."""
    kind = error if isinstance(error, type) else type(error)
    return next((PROBLEMS[each] for each in kind.__mro__ if each in PROBLEMS), None)


# The API.


def problem_response(error: Exception, _context: Mapping[str, Any]) -> HttpResponse | None:
    """DRF's exception handler: problem details, or None so that Django logs the error and answers 500."""
    problem = problem_of(error)
    return None if problem is None else _api_answer(problem, error)


def _api_answer(problem: Problem, error: BaseException | None) -> HttpResponse:
    if problem is _AWAY:
        log.error("answered with 503: %s", error)
    body = {
        "type": problem.type,
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail or str(error),
        **_errors(error),
        **(_about_case(error) if isinstance(error, Refusal) and error.case else {}),
    }
    answer = JsonResponse(
        body,
        status=problem.status,
        content_type="application/problem+json",
        json_dumps_params={"ensure_ascii": False, "separators": (",", ":")},
        headers=_headers(problem, error),
    )
    if problem.status in (409, 412) and "etag" in body:
        answer.headers["ETag"] = str(body["etag"])
    return answer


def _headers(problem: Problem, error: BaseException | None) -> dict[str, str]:
    headers = {"Cache-Control": "no-store"}
    if problem is _AWAY:
        headers["Retry-After"] = str(_RETRY_AFTER)
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    return headers


def _errors(error: BaseException | None) -> dict[str, Any]:
    """``errors`` with an RFC 6901 pointer into the body, or the name of the query parameter."""
    where = "parameter" if isinstance(error, requests.InvalidQuery) else "pointer"
    faults = _faults(error)[:_MOST_FAULTS]
    listed = [{where: each.pointer, "detail": each.detail[:_LONGEST_DETAIL]} for each in faults]
    return {"errors": listed} if listed else {}


def _faults(error: BaseException | None) -> list[Fault]:
    if isinstance(error, refusals.InvalidContent | requests.InvalidRequest | requests.InvalidQuery):
        return error.faults
    if pointer := _POINTERS.get(type(error)):
        return [Fault(pointer, str(error))]
    return []


_POINTERS = {
    UnknownTool: "/action",
    refusals.ReasonRequired: "/reason",
    refusals.AmountMismatch: "/typed_amount",
    refusals.EvidenceRequired: "/evidence",
    refusals.ReferenceRequired: "/reference",
}


def _about_case(error: Refusal) -> dict[str, Any]:
    """What the caller needs to go on: the case, its current tag, and what came of it or changed in it."""
    case = error.case
    assert case is not None
    about: dict[str, Any] = {
        "case": representations.case_link(case.pk),
        "etag": str(tag_of(case)),
        "revision": case.revision,
        "state": case.state,
    }
    if isinstance(error, refusals.VersionConflict):
        about["changed"] = differences.changed_since(case, error.seen_revision or 0)
    if isinstance(error, refusals.NotPossibleYet):
        about["until"] = representations.moment(error.until)
    if isinstance(error, refusals.InProgress | refusals.AlreadyExecuted):
        about["operation"] = representations.case(case)["operation"]
    return about


# Django's own error handlers: pages, and what happens under /api/ outside of any view.


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400, or 413 where the body was too large."""
    return _answer(request, exception)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403."""
    return _answer(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404."""
    return _answer(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """503 where the database is away, else 500. Django calls this while it handles the error."""
    return _answer(request, sys.exception())


def _answer(request: HttpRequest, error: BaseException | None) -> HttpResponse:
    problem = (problem_of(error) if error else None) or _BROKEN
    if request.path.startswith("/api/"):
        return _api_answer(problem, error)
    return _page(problem)


def _page(problem: Problem) -> HttpResponse:
    """The status's page. It renders without a request: what failed may be what the context would read."""
    fallback = "errors/500.html" if problem.status >= 500 else "errors/400.html"
    page = select_template([f"errors/{problem.status}.html", fallback])
    headers = {"Retry-After": str(_RETRY_AFTER)} if problem is _AWAY else {}
    return HttpResponse(page.render({}), status=problem.status, headers=headers)
