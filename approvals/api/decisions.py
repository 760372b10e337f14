"""/cases/{id}/decisions and /votes: what people say about one revision."""

import hashlib
import json
from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from approvals import cases, decisions, representations, votes
from approvals.api import pages, schemas
from approvals.api.cases import case_answer, seen_tag
from approvals.api.endpoint import Endpoint, is_current, snapshot, tagged, unchanged
from approvals.decisions import Word
from approvals.models import Case, Vote
from approvals.states import Verdict
from ledger.money import MalformedAmount, parse_amount


class Decisions(Endpoint):
    """A person's word on a case."""

    def post(self, request: Request, case_id: int) -> Response:
        """Decides on the revision named in If-Match and the digest the person saw."""
        person = self.person
        seen = seen_tag(person, request, case_id)
        body = schemas.checked(request.data, schemas.DECISION)
        word = Word(
            verdict=Verdict(body["verdict"]),
            digest=body["digest"],
            reason_code=body.get("reason_code", ""),
            reason=body.get("reason", ""),
            typed_amount=_minor_units(cases.visible(actor=person, case_id=case_id), body.get("typed_amount")),
        )
        decided = decisions.decide(actor=person, case_id=case_id, seen=seen, word=word)
        return case_answer(person, case_id, replayed=decided.replayed)


def _minor_units(case: Case, typed: str | None) -> int | None:
    """The typed amount, or None where it is no amount of the case's currency: a tier that asks for it will refuse."""
    if typed is None or case.proposal.currency is None:
        return None
    try:
        return parse_amount(typed, case.proposal.currency)
    except MalformedAmount:
        return None


class Votes(Endpoint):
    """The votes on a case. They do not raise its revision, so they are no part of it and have a tag of their own."""

    query_parameters: ClassVar = pages.PARAMETERS

    def get(self, request: Request, case_id: int) -> Response:
        """All words in order, and how many approvals of the current revision stand."""
        with snapshot():
            case = cases.visible(actor=self.actor, case_id=case_id)
            rows = Vote.objects.select_related("reviewer__user").filter(case=case)
            found, cursor = pages.page(rows, request, by="pk")
            standing = votes.standing_approvals([(case.pk, case.revision)])[case.pk]
        body = {
            "revision": case.revision,
            "standing_approvals": len(standing),
            "approvals_required": case.proposal.policy.approvals_required,
            **pages.listed([representations.vote(each) for each in found], cursor, request),
        }
        # Whether a vote counts depends on its giver's role, too: only the content itself can be its tag.
        tag = f'"{hashlib.sha256(json.dumps(body).encode()).hexdigest()[:16]}"'
        return unchanged(tag) if is_current(request, tag) else tagged(body, tag)
