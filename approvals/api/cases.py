"""/cases: proposing, listing, reading, revising, withdrawing."""

from typing import Any, ClassVar

from django.urls import reverse
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.actors import Actor
from approvals import cases, representations, tags
from approvals.api import pages, schemas
from approvals.api.endpoint import Endpoint, is_current, snapshot, tagged, unchanged
from approvals.models import Case, Revision
from approvals.proposals import Content, facts
from approvals.states import CaseState
from approvals.tags import tag_of


class Cases(Endpoint):
    """The tenant's cases."""

    query_parameters: ClassVar = (*pages.PARAMETERS, "state", "action", "reference")

    def get(self, request: Request) -> Response:
        """The newest first, filtered by state, action and reference."""
        wanted = {
            "state": pages.choice_filter(request, "state", CaseState.values),
            "action": pages.text_filter(request, "action"),
            "reference": pages.text_filter(request, "reference"),
        }
        rows = Case.objects.select_related("proposal__policy").filter(
            tenant_id=self.actor.tenant_id,
            **{name: value for name, value in wanted.items() if value is not None},
        )
        with snapshot():
            found, cursor = pages.page(rows, request, by="-pk")
            items = representations.cases(found)
        return pages.answer(pages.listed(items, cursor, request))

    def post(self, request: Request) -> Response:
        """Proposes. 201 opens a case; the same facts and material again: 200, the case there is, whatever its state."""
        agent = self.agent
        body = schemas.checked(request.data, schemas.PROPOSAL)
        proposed = cases.propose(
            actor=agent,
            facts=facts(
                reference=body["reference"],
                action=body["action"],
                target=body["target"],
                step=body.get("step", 1),
            ),
            content=_content(body),
            compensates=body.get("compensates"),
        )
        answer = case_answer(agent, proposed.case.pk, replayed=proposed.replayed, created=True)
        answer.headers["Location"] = representations.case_link(proposed.case.pk)
        return answer


class OneCase(Endpoint):
    """One case."""

    def get(self, request: Request, case_id: int) -> Response:
        """The case, or 304 where the caller holds this revision of it."""
        with snapshot():
            case = cases.visible(actor=self.actor, case_id=case_id)
            tag = str(tag_of(case))
            if is_current(request, tag):
                return unchanged(tag)
            return tagged(representations.case(case), tag)


class Revisions(Endpoint):
    """Every revision a case has had; none of them changes."""

    query_parameters: ClassVar = pages.PARAMETERS

    def get(self, request: Request, case_id: int) -> Response:
        """From the first on, each with the content it had."""
        case = cases.visible(actor=self.actor, case_id=case_id)
        rows = Revision.objects.select_related("proposal").filter(case=case)
        found, cursor = pages.page(rows, request, by="number")
        return pages.answer(pages.listed(representations.revisions(found), cursor, request))

    def post(self, request: Request, case_id: int) -> Response:
        """Replaces the content of the revision in If-Match, or proposes it again where nothing came of it."""
        agent = self.agent
        seen = seen_tag(agent, request, case_id)
        content = _content(schemas.checked(request.data, schemas.REVISION))
        revised = cases.revise(actor=agent, case_id=case_id, seen=seen, content=content)
        return case_answer(agent, case_id, replayed=revised.replayed, created=True)


class Withdrawal(Endpoint):
    """Taking a case back before it is claimed."""

    def post(self, request: Request, case_id: int) -> Response:
        """Withdraws the revision named in If-Match; its agent or a reviewer may."""
        seen = seen_tag(self.actor, request, case_id)
        body = schemas.checked(request.data, schemas.WITHDRAWAL)
        withdrawn = cases.withdraw(
            actor=self.actor, case_id=case_id, seen=seen, reason=body.get("reason", "")
        )
        return case_answer(self.actor, case_id, replayed=withdrawn.replayed)


def _content(body: dict[str, Any]) -> Content:
    return Content(
        parameters=body["parameters"],
        expects=body.get("expects", {}),
        rationale=body.get("rationale", ""),
        evidence=body.get("evidence", []),
        trace_id=body.get("trace_id", ""),
    )


# What every act on one case shares.


def seen_tag(actor: Actor, request: Request, case_id: int) -> tags.Tag:
    """The revision If-Match names, asked for only of those who may know that there is a case."""
    cases.visible(actor=actor, case_id=case_id)
    return tags.parse(request.headers.get("If-Match"))


def case_answer(actor: Actor, case_id: int, *, replayed: bool, created: bool = False) -> Response:
    """The case after an act, under its tag: the answer is a representation of the case, not of the act."""
    with snapshot():
        case = cases.visible(actor=actor, case_id=case_id)
        body = representations.case(case)
    return Response(
        body,
        status=201 if created and not replayed else 200,
        headers={
            "Content-Location": reverse("api-case", args=[case_id]),
            "ETag": str(tag_of(case)),
            **({"Idempotent-Replayed": "true"} if replayed else {}),
        },
    )
