"""Votes: a reviewer's word on one revision, and which of them still count."""

from collections import defaultdict
from collections.abc import Iterable

from accounts.models import Role
from approvals.models import Case, Vote
from approvals.states import Verdict


def standing_approvals(revisions: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    """{case id: members whose last word on that revision is approve}, for (case id, revision) pairs.

    A word counts only while its giver is an active reviewer, and never from a person behind the proposal.
    """
    wanted = dict(revisions)
    latest = (
        Vote.objects.filter(case_id__in=list(wanted))
        .order_by("case_id", "revision", "reviewer_id", "-id")
        .distinct("case_id", "revision", "reviewer_id")
        .values_list("case_id", "revision", "verdict", "reviewer_id", *_STANDING)
    )
    standing: dict[int, set[int]] = defaultdict(set)
    for case_id, revision, verdict, reviewer_id, member, user, roles, owner_id, opened_by_id in latest:
        stands = member and user and Role.REVIEWER in roles and reviewer_id not in (owner_id, opened_by_id)
        if revision == wanted[case_id] and verdict == Verdict.APPROVE and stands:
            standing[case_id].add(reviewer_id)
    return standing


_STANDING = (
    "reviewer__is_active",
    "reviewer__user__is_active",
    "reviewer__roles",
    "case__agent__owner_id",
    "case__opened_by_id",
)


def last_word(*, case: Case, revision: int, reviewer_id: int) -> Vote | None:
    """The reviewer's latest vote on that revision."""
    return Vote.objects.filter(case=case, revision=revision, reviewer_id=reviewer_id).order_by("-id").first()
