"""Votes: a reviewer's word on one revision, and which of them still count."""

from collections import defaultdict
from collections.abc import Iterable

from accounts.models import Role
from approvals.models import Case, Vote
from approvals.states import Verdict


def standing_approvals(revisions: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    """{case id: members whose last word on that revision is approve}, for (case id, revision) pairs.

    A word counts only while its giver is an active reviewer, and never from the person behind the proposing agent.
    """
    wanted = dict(revisions)
    latest = (
        Vote.objects.filter(case_id__in=list(wanted))
        .select_related("reviewer__user", "case__agent")
        .order_by("case_id", "revision", "reviewer_id", "-id")
        .distinct("case_id", "revision", "reviewer_id")
    )
    standing: dict[int, set[int]] = defaultdict(set)
    for vote in latest:
        if (
            vote.revision == wanted[vote.case_id]
            and vote.verdict == Verdict.APPROVE
            and vote.reviewer.has_role(Role.REVIEWER)
            and vote.case.agent.owner_id != vote.reviewer_id
        ):
            standing[vote.case_id].add(vote.reviewer_id)
    return standing


def last_word(*, case: Case, revision: int, reviewer_id: int) -> Vote | None:
    """The reviewer's latest vote on that revision."""
    return Vote.objects.filter(case=case, revision=revision, reviewer_id=reviewer_id).order_by("-id").first()
