"""What the Reconcile page tells of one operation beyond its state: looks, choices, what undoes it, and what is new."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from approvals import compensations
from approvals.console import disagreements
from approvals.console.choices import choices, pair, suggestion, why_not_stop
from approvals.console.entrance import Visitor
from approvals.console.forms import Form
from approvals.console.known import Known
from approvals.console.operation import circumstances
from approvals.console.unsettled import Item
from approvals.templatetags.states import words as in_plain_words
from approvals.templatetags.times import zoned
from ledger import attestations
from ledger.states import EnforcementClass, OperationState


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a form that was not recorded: what was typed, the words above it, and the status."""

    form: Form = field(default_factory=lambda: Form("", {}))
    status: int = 200
    notice: str = ""
    news: Sequence[str] = ()


def of(visitor: Visitor, item: Item, answered: Answered) -> dict[str, Any]:
    """What the open item's article tells beyond the item itself."""
    version = item.known.operation.order.tool_version
    told = {
        "tag": attestations.tag_of(item.known.operation),
        "looks": [each for each in item.known.attempts if each.lookups],
        "next_look": _next_look(item),
        "findings": disagreements.about(item.known.operation),
        **undo(item.known),
    }
    if item.known.settled:
        return told
    here = circumstances(item.known, item.case)
    offered = choices(item, here)
    return {
        **told,
        "suggestion": suggestion(item),
        "choices": offered,
        "chosen": _chosen(answered.form, item),
        "reference": _reference(answered.form, item),
        "pair": pair(item, visitor.actor),
        "no_stop": why_not_stop(item),
        "can_be_asked": version.enforcement != EnforcementClass.NONE,
        "can_look": not here.held and item.known.state != OperationState.NOT_STARTED,
    }


def _chosen(form: Form, item: Item) -> str:
    """The choice that is already made: the one that came back, or what a late report speaks for."""
    late = any(each.reference for each in item.known.evidence)
    return form.values.get("choice") or ("happened" if late else "")


def _reference(form: Form, item: Item) -> str:
    """What was typed; else what a late report names. Never another person's: the second one looks for themselves."""
    late = [each.reference for each in item.known.evidence if each.reference]
    return form.values.get("reference") or (late[-1] if late and item.first_word is None else "")


def _next_look(item: Item) -> datetime | None:
    """When it is looked up by itself; None: never, or that is not known."""
    due_at = item.known.operation.due_at
    return None if item.known.operation.reason == "set_aside" else due_at


def undo(known: Known | None) -> dict[str, Any]:
    """The compensating case of a proven effect: the one there is, or why none can be opened."""
    if known is None or known.state != OperationState.COMMITTED:
        return {"no_undo": "Compensating is off: nothing is proven yet."}
    if (live := compensations.live(known.operation)) is not None:
        return {"undone_by": live}
    if not known.operation.order.tool_version.compensation:
        return {"no_undo": "This tool names no action that undoes it. Undo it at the sink itself."}
    return {"can_undo": True}


def news_since(known: Known, looked: datetime) -> list[str]:
    """What has come in about an operation since somebody looked, in words."""
    news = [*_of_attempts(known, looked)]
    for late in known.evidence:
        if late.recorded_at > looked:
            reference = f", {late.reference}" if late.reference else ""
            said = f"{in_plain_words(late.outcome)}{reference}"
            news.append(f"{late.worker} reported late, under token {late.token}: {said}.")
    news += [
        f"Ledger and sink disagree: {each.words}"
        for each in disagreements.about(known.operation)
        if each.finding.opened_at > looked
    ]
    settled_at = known.operation.settled_at
    if settled_at and settled_at > looked:
        news.append(f"It was settled at {zoned(settled_at, 'seconds')}: {in_plain_words(known.state)}.")
    return news


def _of_attempts(known: Known, looked: datetime) -> Iterator[str]:
    for each in known.attempts:
        if each.started_at > looked:
            yield f"Attempt {each.number} began, token {each.token}."
        if each.ended_at and each.outcome and each.ended_at > looked:
            note = f" {each.note}" if each.note else ""
            yield f"Attempt {each.number} ended: {in_plain_words(each.outcome)}.{note}"
