"""What a person may do about a case now, and why not what is off. The domain judges again; this explains it earlier."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from approvals import retention
from approvals.console.entrance import Visitor
from approvals.console.known import Holder
from approvals.console.signatures import Quorum
from approvals.models import Case
from approvals.states import CaseState, Verdict
from approvals.templatetags.times import zoned

WITHDRAW = "withdraw"
"""Not a verdict, but decided in the same bar."""

PRESETS: Mapping[str, Sequence[tuple[str, str]]] = {
    Verdict.REJECT: [
        ("wrong_amount", "Wrong amount"),
        ("wrong_target", "Wrong payee or target"),
        ("not_needed", "Not needed"),
        ("evidence", "The evidence does not support it"),
        ("other", "Something else"),
    ],
    Verdict.REQUEST_CHANGES: [
        ("amount", "Another amount"),
        ("target", "Another payee or target"),
        ("evidence", "More evidence"),
        ("other", "Something else"),
    ],
}
"""Reasons to choose from: code, words. The code goes to the agent with the reviewer's own words."""


@dataclass(frozen=True, slots=True)
class Act:
    """One way to decide; ``why`` is not empty where it is off, and says why."""

    verdict: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """What decides which acts there are: the case, who looks, the votes, the clock, what stands in the way."""

    case: Case
    visitor: Visitor
    quorum: Quorum
    now: datetime
    disputed: bool
    waits_for: Holder | None = None
    wait: str = ""


def acts(here: Situation) -> list[Act]:
    """The acts this state offers this person: the quiet ones first, the one that is filled last."""
    offered = _OFFERED.get(CaseState(here.case.state), [])
    if here.case.state == CaseState.PENDING and here.quorum.has_my_approval:
        offered = [*offered[:-1], Verdict.REVOKE, Verdict.APPROVE]
    if not here.visitor.reviews:
        # One button that is off says it; five would only repeat it.
        return [Act(verdict, _not_a_reviewer(here)) for verdict in offered[-1:]]
    return [Act(verdict, _WHY_NOT.get(verdict, _never)(here)) for verdict in offered]


_OFFERED: Mapping[CaseState, Sequence[str]] = {
    CaseState.PENDING: [
        Verdict.HOLD,
        WITHDRAW,
        Verdict.REQUEST_CHANGES,
        Verdict.REJECT,
        Verdict.APPROVE,
    ],
    CaseState.RETURNED: [WITHDRAW, Verdict.REJECT],
    CaseState.HELD: [WITHDRAW, Verdict.REJECT, Verdict.RELEASE],
    CaseState.APPROVED: [WITHDRAW, Verdict.REVOKE],
    CaseState.REJECTED: [Verdict.REOPEN],
    CaseState.FAILED: [WITHDRAW],
}


def _never(_here: Situation) -> str:
    return ""


def _not_a_reviewer(here: Situation) -> str:
    return f"Only a reviewer can decide; you are here as {here.visitor.roles}."


def _owned(here: Situation) -> str:
    if here.visitor.member.pk == here.case.opened_by_id:
        return "You opened this case, so somebody else has to do this."
    if here.case.agent.owner_id != here.visitor.member.pk:
        return ""
    return f"You stand behind {here.case.agent.name}, so somebody else has to do this."


def _why_not_approve(here: Situation) -> str:
    if owned := _owned(here):
        return owned
    if (
        here.quorum.has_my_approval and here.quorum.missing
    ):  # complete again, it takes one more click to be counted
        return f"You have approved this revision; it waits for {here.quorum.missing_words}."
    if here.case.proposal.expires_at <= here.now:
        return (
            f"The deadline passed at {zoned(here.case.proposal.expires_at)}. The agent may propose it again."
        )
    if here.disputed:
        return "Ledger and sink disagree about this case. That has to be settled first."
    return ""


def _why_not_reopen(here: Situation) -> str:
    if retention.removed(here.case) is not None:
        return "Its content was removed, so there is nothing left to decide on. It may be proposed under another step."
    return _owned(here)


_WHY_NOT: Mapping[str, Callable[[Situation], str]] = {
    Verdict.APPROVE: _why_not_approve,
    Verdict.RELEASE: _owned,
    Verdict.REOPEN: _why_not_reopen,
}


def bar_words(here: Situation, last_actor: str) -> str:
    """Said in the bar where no decision is about to be made; empty while one is."""
    words = _BAR_WORDS.get(CaseState(here.case.state), "")
    if here.case.state == CaseState.APPROVED and here.waits_for:
        words = _WAITS
    elif here.case.state == CaseState.APPROVED and here.wait:
        words = _WAITS_FOR
    elif here.case.state == CaseState.EXECUTED and here.disputed:
        words = _DISPUTED
    return words.format(
        actor=last_actor,
        agent=here.case.agent.name,
        revision=here.case.revision,
        approvers=here.quorum.approvers,
        wait=here.wait,
    )


_WAITS = (
    "Approved by {approvers}, which made revision {revision}. "
    "Another operation on the same resource is not settled."
)

_WAITS_FOR = "Approved by {approvers}, which made revision {revision}. It waits: {wait}"

_DISPUTED = "It has happened, and ledger and sink disagree about what came of it."

_BAR_WORDS: Mapping[CaseState, str] = {
    CaseState.RETURNED: "{actor} asked for changes. It is {agent}’s turn.",
    CaseState.HELD: "{actor} holds it. Its deadline runs on.",
    CaseState.APPROVED: "Approved by {approvers}, which made revision {revision}. No worker has taken it yet.",
    CaseState.REJECTED: "{actor} rejected it. Nothing will be sent.",
    CaseState.WITHDRAWN: "{actor} withdrew it. Nothing will be sent; the agent may propose it again.",
    CaseState.EXPIRED: "The deadline passed before it began. Nothing will be sent; the agent may propose it again.",
    CaseState.EXECUTING: "It is being carried out and can no longer be taken back.",
    CaseState.EXECUTED: "It has happened, once. To undo it takes a new case that compensates it.",
    CaseState.FAILED: "It did not happen. The agent may propose it again.",
    CaseState.UNKNOWN: "It may have happened. Nothing can be decided here until that is known.",
}
