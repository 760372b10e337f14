"""A person's word on a case, from the page's form: one domain call, then the committed fact, or why there is none."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from django.contrib import messages
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from approvals import cases, decisions
from approvals.console import case as case_page
from approvals.console import queue
from approvals.console.acts import PRESETS, WITHDRAW
from approvals.console.cases import address
from approvals.console.conflict import conflict_page
from approvals.console.entrance import Visitor, act
from approvals.console.recorded import recorded_words
from approvals.decisions import Word
from approvals.errors import (
    AmountMismatch,
    NotFound,
    NotPermitted,
    PersonRequired,
    ReasonRequired,
    Refusal,
    SelfApproval,
    VersionConflict,
)
from approvals.models import Case
from approvals.states import Verdict
from approvals.tags import Tag
from ledger.money import MalformedAmount, format_money, parse_amount

_LONGEST_REASON = 2000  # characters; what the API takes, too


@dataclass(frozen=True, slots=True)
class Draft:
    """What somebody has filled in: kept and shown again, whatever the answer."""

    verdict: str
    revision: int
    digest: str
    reason_code: str
    reason: str
    typed_amount: str
    errors: Mapping[str, str]

    @property
    def seen(self) -> Tag:
        """What was on the page."""
        return Tag(self.revision, self.digest[:8])


@act
def decide(request: HttpRequest, visitor: Visitor, case_id: int) -> HttpResponse:
    """Records the word, or answers with the page that says that it was not recorded, and why."""
    draft = _read(request)
    shown = cases.visible(actor=visitor.actor, case_id=case_id)
    if draft.errors:
        return _incomplete(request, visitor, case_id, draft)
    try:
        decided, replayed = _record(visitor, shown, draft)
    except Refusal as error:
        return _refused(request, visitor, shown, draft, error)
    messages.success(
        request,
        recorded_words(decided, draft.verdict, draft.revision, replayed=replayed),
        extra_tags=f"draft {case_id}-",
    )
    response = HttpResponseRedirect(address(case_id, queue.origin(request, visitor)))
    response.status_code = 303
    return response


def _record(visitor: Visitor, shown: Case, draft: Draft) -> tuple[Case, bool]:
    """The one domain call."""
    if draft.verdict == WITHDRAW:
        withdrawn = cases.withdraw(
            actor=visitor.actor, case_id=shown.pk, seen=draft.seen, reason=draft.reason
        )
        return withdrawn.case, withdrawn.replayed
    word = Word(
        verdict=Verdict(draft.verdict),
        digest=draft.digest,
        reason_code=draft.reason_code,
        reason=draft.reason,
        typed_amount=_minor_units(draft.typed_amount, shown),
    )
    decided = decisions.decide(actor=visitor.actor, case_id=shown.pk, seen=draft.seen, word=word)
    return decided.case, decided.replayed


# Reading the form.


def _read(request: HttpRequest) -> Draft:
    """The form as it was filled in. Raises SuspiciousOperation (400) where its hidden part is not as we made it."""
    form = request.POST
    verdict, revision, digest = form.get("verdict", ""), form.get("revision", ""), form.get("digest", "")
    if verdict not in {*Verdict.values, WITHDRAW}:
        raise SuspiciousOperation("The form names no verdict.")
    if not re.fullmatch("[1-9][0-9]{0,9}", revision) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise SuspiciousOperation("The form names no revision and digest.")
    reason = form.get("reason", "").replace("\r\n", "\n").strip()
    reason_code = form.get("reason_code", "")
    return Draft(
        verdict=verdict,
        revision=int(revision),
        digest=digest,
        reason_code=reason_code,
        reason=reason,
        typed_amount=form.get("typed_amount", "").strip(),
        errors=_form_faults(verdict, reason, reason_code),
    )


def _form_faults(verdict: str, reason: str, reason_code: str) -> dict[str, str]:
    faults = {}
    if len(reason) > _LONGEST_REASON:
        faults["reason"] = (
            f"At most {_LONGEST_REASON} characters; this has {len(reason)}. Nothing was recorded."
        )
    if "\0" in reason:
        faults["reason"] = "It holds a character that cannot be stored. Nothing was recorded."
    codes = {code for code, _ in PRESETS.get(verdict, [])}
    if reason_code and reason_code not in codes:
        faults["reason_code"] = "Choose one of the list. Nothing was recorded."
    return faults


def _minor_units(typed: str, shown: Case) -> int | None:
    """The typed amount; None where it is none, which a tier that asks for it refuses."""
    currency = shown.proposal.currency
    if currency is None:
        return None
    try:
        # The page shows the amount with its code, so it may be typed with it: with that code and no other.
        return parse_amount(typed.removesuffix(f" {currency}"), currency)
    except MalformedAmount:
        return None


# Answering.


STATUSES: Mapping[type[Refusal], int] = {
    ReasonRequired: 422,
    AmountMismatch: 422,
    NotPermitted: 403,
    PersonRequired: 403,
    SelfApproval: 403,
    VersionConflict: 412,
}
"""How a refused word is answered; whatever is not here met a state that does not allow it: 409."""


def _refused(
    request: HttpRequest, visitor: Visitor, shown: Case, draft: Draft, error: Refusal
) -> HttpResponse:
    if isinstance(error, NotFound):
        raise error
    status = STATUSES.get(type(error), 409)
    if status == 422:
        return _incomplete(request, visitor, shown.pk, replace(draft, errors=_faults(error, draft, shown)))
    if status == 403:
        return render(request, "errors/403.html", {"message": str(error)}, status=403)
    return conflict_page(request, visitor, shown.pk, draft, error)


def _faults(error: Refusal, draft: Draft, shown: Case) -> dict[str, str]:
    if isinstance(error, ReasonRequired):
        return {"reason": f"{error} Nothing was recorded."}
    expected = format_money(shown.proposal.amount_minor or 0, shown.proposal.currency or "")
    if not draft.typed_amount:
        return {"typed_amount": f"Type {expected}. Nothing was recorded."}
    if _minor_units(draft.typed_amount, shown) is None:
        return {
            "typed_amount": f"“{draft.typed_amount}” is no amount; it must read {expected}. Nothing was recorded."
        }
    return {"typed_amount": f"{draft.typed_amount} is not {expected}. Nothing was recorded."}


def _incomplete(request: HttpRequest, visitor: Visitor, case_id: int, draft: Draft) -> HttpResponse:
    """The page again, its panel open, what was typed kept; unless it would be another revision's page by now."""
    shown = cases.visible(actor=visitor.actor, case_id=case_id)
    if not draft.seen.matches(shown):
        return conflict_page(request, visitor, case_id, draft, None)
    context = case_page.context(request, visitor, shown, panel=draft.verdict, draft=draft)
    return render(request, "approvals/case.html", context, status=422)
