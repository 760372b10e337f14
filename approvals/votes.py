"""Votes: a reviewer's word on one revision, and which of them still count."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from accounts import members
from accounts.sql import Queries
from approvals.models import Case, Vote
from approvals.states import Verdict

QUERIES = Queries(Path(__file__).with_name("queries.sql"))


def standing_approvals(revisions: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    """{case id: members whose last word on that revision is approve}, for (case id, revision) pairs.

    A word counts only while its giver is an active reviewer, and never from a person behind the proposal.
    """
    wanted = dict(revisions)
    votes = QUERIES.rows("last_votes", cases=list(wanted), revisions=list(wanted.values()))
    approvals = [vote for vote in votes if vote.verdict == Verdict.APPROVE]
    standing: dict[int, set[int]] = defaultdict(set)
    if not approvals:
        return standing
    deciding = members.may_decide({(vote.reviewer_id, vote.agent_id) for vote in approvals})
    for vote in approvals:
        if (vote.reviewer_id, vote.agent_id) in deciding and vote.reviewer_id != vote.opened_by_id:
            standing[vote.case_id].add(vote.reviewer_id)
    return standing


def last_word(*, case: Case, revision: int, reviewer_id: int) -> Vote | None:
    """The reviewer's latest vote on that revision."""
    return Vote.objects.filter(case=case, revision=revision, reviewer_id=reviewer_id).order_by("-id").first()
