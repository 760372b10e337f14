"""Compensating cases: an effect that is proven is undone by another case, proposed, approved and executed like any."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from django.db import IntegrityError, transaction

from accounts.actors import Actor
from accounts.models import Role
from approvals import cases, proposals, resolutions
from approvals.errors import NotCompensable, NotPermitted, PersonRequired
from approvals.models import Case
from approvals.proposals import Content, Facts
from ledger import tools
from ledger.models import Operation
from ledger.states import OperationState


def compensate(*, actor: Actor, key: str, rationale: str) -> cases.Proposed:
    """Opens the case that undoes a committed operation, by its tool's template; where there is one, answers with it.

    The person who opens it may not approve it. Raises NotFound, PersonRequired, NotPermitted, NotCompensable (409, also
    for what is unresolved), InvalidContent where the template no longer fits its tool.
    """
    if actor.kind != "person":
        raise PersonRequired(
            "Only a signed-in operator opens a compensating case; an agent proposes its own action."
        )
    operation = resolutions.visible(actor=actor, key=key)
    case = cases.visible(actor=actor, case_id=operation.order.subject)
    with cases.counted(actor):
        if not actor.has_role(Role.OPERATOR):
            raise NotPermitted("Only an operator can do this. Ask an admin for that role.", case=case)
        template = operation.order.tool_version.compensation
        if operation.state != OperationState.COMMITTED:
            raise NotCompensable(case=case)
        if not template:
            raise NotCompensable(
                "This tool names no action that undoes it. Undo it at the sink itself.", case=case
            )
        if (open_one := live(operation)) is not None:
            return cases.Proposed(open_one, replayed=True)
        return _open(actor, operation, case, template, rationale)


def live(operation: Operation) -> Case | None:
    """The case that undoes this effect, or may."""
    return (
        Case.objects.filter(compensates=operation, is_dead=False).select_related("proposal__policy").first()
    )


def _open(
    actor: Actor, operation: Operation, undone: Case, template: Mapping[str, Any], rationale: str
) -> cases.Proposed:
    values = {
        **proposals.material(proposals.of_revision(undone, operation.order.approved_revision))["parameters"],
        **proposals.facts_as_json(undone),
        "sink_reference": operation.reference,
        "key": operation.order.key,
    }
    filled = tools.fill({"target": "{target}", "parameters": {}, **template}, values)
    content = Content(parameters=filled["parameters"], expects={}, rationale=rationale or _WHY)
    tried: set[int] = set()
    while True:
        facts = _facts(undone, filled, tried)
        try:
            with transaction.atomic():
                case = cases.open_compensation(
                    actor=actor, undone=undone, operation=operation, facts=facts, content=content
                )
        except IntegrityError as error:
            if "one_case_per_action" in str(error):  # somebody has proposed this step at this moment
                tried.add(facts.step)
                continue
            if "one_live_compensation_per_effect" not in str(error):
                raise
            first = live(operation)
            assert first is not None  # the one that kept this one from being opened
            return cases.Proposed(first, replayed=True)
        return cases.Proposed(case, replayed=False)


_WHY = "Opened by an operator to undo an effect that is proven."


def _facts(undone: Case, filled: Mapping[str, Any], tried: Collection[int]) -> Facts:
    """An effect that was undone, and done and undone again, has a step for each time: the lowest that is free."""
    first = proposals.facts(
        reference=undone.reference, action=str(filled["action"]), target=str(filled["target"]), step=1
    )
    same = Case.objects.filter(
        tenant_id=undone.tenant_id, reference=first.reference, action=first.action, target=first.target
    )
    taken = {*same.values_list("step", flat=True), *tried}
    return replace(first, step=next(step for step in count(1) if step not in taken))
