"""What a page says after a word was recorded: only what the commit has made true."""

from collections.abc import Mapping

from approvals import votes
from approvals.console.acts import WITHDRAW
from approvals.models import Case
from approvals.states import CaseState, Verdict
from approvals.templatetags.states import said


def recorded_words(case: Case, verdict: str, seen: int, *, replayed: bool) -> str:
    """One or two sentences: what is recorded, on which revision, and whether anything is sent by it."""
    if replayed:
        return f"You have done this before: {said(verdict).lower()}, on revision {seen}. Nothing was recorded twice."
    if verdict == Verdict.APPROVE and case.state != CaseState.APPROVED:
        return _one_of_several(case, seen)
    if verdict == Verdict.REVOKE and case.revision == seen:
        return f"Your approval of revision {seen} is taken back."
    return _RECORDED[verdict].format(seen=seen, made=case.revision, agent=case.agent.name)


def _one_of_several(case: Case, seen: int) -> str:
    required = case.proposal.policy.approvals_required
    given = len(votes.standing_approvals([(case.pk, case.revision)])[case.pk])
    return f"Your approval of revision {seen} is recorded: {given} of {required}. Nothing is sent before the last one."


_RECORDED: Mapping[str, str] = {
    Verdict.APPROVE: (
        "Your approval of revision {seen} is recorded. It was the last one needed and made revision {made}: "
        "the operation is written, and sent as soon as a worker takes it."
    ),
    Verdict.REJECT: (
        "Your rejection of revision {seen} is recorded. Nothing will be sent, and {agent} is told your reason."
    ),
    Verdict.REQUEST_CHANGES: (
        "Your request for changes to revision {seen} is recorded, and {agent} is told. Nothing will be sent."
    ),
    Verdict.HOLD: "Held at revision {made}. Nothing is sent while it is on hold.",
    Verdict.RELEASE: "Released: revision {made} waits for review. Nothing was sent.",
    Verdict.REVOKE: "The approval is revoked: revision {made} waits for review. Nothing was sent.",
    Verdict.REOPEN: "Reopened: revision {made} waits for review. Nothing was sent.",
    WITHDRAW: "Withdrawn at revision {made}. Nothing will be sent.",
}
