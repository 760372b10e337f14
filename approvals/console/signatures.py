"""Who has given which word on a case: the votes, and the quorum as lines that wait to be signed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from accounts.models import Member
from approvals import votes
from approvals.console.entrance import Visitor
from approvals.models import Case, Revision, Vote
from approvals.states import OPEN, Act, CaseState, Verdict
from approvals.templatetags.times import clock

STALE = "stale"
"""A newer revision has made it void."""
TAKEN_BACK = "taken back"
"""By its giver, on the same revision."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A vote as the page tells it; one that is ``over`` no longer counts and is struck, and the word says why."""

    who: str
    member_id: int
    verdict: str
    revision: int
    at: datetime
    reason: str
    over: str
    pk: int


@dataclass(frozen=True, slots=True)
class Line:
    """One signature line: the agent's, a signed one, a stale one, yours, or one that is still open."""

    kind: str
    name: str
    words: str


@dataclass(frozen=True, slots=True)
class Quorum:
    """The votes on a case: who has signed the content that counts, and how many are still missing."""

    votes: Sequence[Shown]
    required: int
    decided: bool
    mine: int

    @property
    def standing(self) -> list[Shown]:
        """Approvals that count, in the order in which they were given."""
        counting = [each for each in self.votes if each.verdict == Verdict.APPROVE and not each.over]
        return sorted(counting, key=lambda each: each.pk)

    @property
    def missing(self) -> int:
        """Approvals still needed."""
        return 0 if self.decided else max(self.required - len(self.standing), 0)

    @property
    def missing_words(self) -> str:
        """Who is still waited for, in words."""
        return "one more reviewer" if self.missing == 1 else f"{self.missing} more reviewers"

    @property
    def has_my_approval(self) -> bool:
        """Whether the person who looks has approved what would be approved now."""
        return any(each.member_id == self.mine for each in self.standing)

    @property
    def approvers(self) -> str:
        """The names of those whose approval counts."""
        return in_a_row([each.who for each in self.standing])


def quorum(case: Case, visitor: Visitor, *, approved_revision: int | None) -> Quorum:
    """The votes on the case, the newest first. ``approved_revision`` is that of its operation, if it has one."""
    rows = list(Vote.objects.select_related("reviewer__user").filter(case=case).order_by("-pk"))
    deciding = _deciding_revision(case, approved_revision)
    current = _current(rows, deciding, case)
    taken_back = {
        (each.reviewer_id, each.revision): each.pk
        for each in reversed(rows)
        if each.verdict == Verdict.REVOKE
    }
    return Quorum(
        votes=[
            _shown(each, over="" if each.pk in current else _over(each, deciding, taken_back))
            for each in rows
        ],
        required=case.proposal.policy.approvals_required,
        decided=case.state not in OPEN,
        mine=visitor.member.pk,
    )


_APPROVED = (
    CaseState.APPROVED,
    CaseState.EXECUTING,
    CaseState.EXECUTED,
    CaseState.FAILED,
    CaseState.UNKNOWN,
)


def _deciding_revision(case: Case, approved_revision: int | None) -> int:
    """The revision on which votes count or have counted: a decision names the one it saw, and makes the next."""
    if case.state == CaseState.PENDING:
        return case.revision
    if case.state in _APPROVED and approved_revision is not None:
        return approved_revision - 1
    return case.revision - 1


def _current(rows: Sequence[Vote], deciding: int, case: Case) -> set[int]:
    """Each person's last word on the deciding revision, if it counts."""
    last: dict[int, Vote] = {}
    for each in rows:
        if each.revision == deciding:
            last.setdefault(each.reviewer_id, each)
    standing = votes.standing_approvals([(case.pk, deciding)])[case.pk]
    return {each.pk for each in last.values() if _counts(case, each, standing)}


def _counts(case: Case, last_word: Vote, standing: set[int]) -> bool:
    """An approval counts towards the decision and in it; what held, returned or rejected the case made it void."""
    if last_word.verdict != Verdict.APPROVE:
        return True
    if case.state == CaseState.PENDING:
        return last_word.reviewer_id in standing
    return case.state in _APPROVED


_MOVES_ON = (Verdict.REVOKE, Verdict.RELEASE, Verdict.REOPEN)
"""What each of them did stays done, whatever comes after it."""


def _over(vote: Vote, deciding: int, taken_back: Mapping[tuple[int, int], int]) -> str:
    """Why a vote that is not current no longer counts; empty where what it did stays done.

    ``taken_back``: by member and revision, the last vote that revoked one.
    """
    if vote.verdict in _MOVES_ON:
        return ""
    if vote.verdict == Verdict.APPROVE and taken_back.get((vote.reviewer_id, vote.revision), 0) > vote.pk:
        return TAKEN_BACK
    return STALE if vote.revision != deciding else "no longer counts"


def _shown(vote: Vote, *, over: str) -> Shown:
    return Shown(
        who=str(vote.reviewer),
        member_id=vote.reviewer_id,
        verdict=vote.verdict,
        revision=vote.revision,
        at=vote.at,
        reason=vote.reason,
        over=over,
        pk=vote.pk,
    )


def lines(case: Case, quorum: Quorum, visitor: Visitor, *, mine_open: bool) -> list[Line]:
    """The signature lines: the agent's first, what no longer counts, what does, and what is still missing."""
    signed = [
        Line("signed", each.who, f"revision {each.revision}, {clock(each.at)}") for each in quorum.standing
    ]
    proposed = Line("agent", case.agent.name, f"proposed revision {content_revision(case)}")
    return [proposed, *_over_lines(quorum), *signed, *_open(quorum, visitor, mine_open=mine_open)]


def _over_lines(quorum: Quorum) -> list[Line]:
    """The last approval of each person if it no longer counts; one that was taken back is as if never signed."""
    last: dict[int, Shown] = {}
    for each in quorum.votes:
        if each.verdict == Verdict.APPROVE:
            last.setdefault(each.member_id, each)
    return [
        Line("stale", each.who, f"revision {each.revision}, {each.over}")
        for each in last.values()
        if each.over and each.over != TAKEN_BACK
    ]


def _open(quorum: Quorum, visitor: Visitor, *, mine_open: bool) -> list[Line]:
    first = len(quorum.standing) + 1
    places = [f"{number} of {quorum.required}" for number in range(first, first + quorum.missing)]
    if not places:
        return []
    yours = [Line("you", str(visitor.member), f"{places[0]}, waits for you")] if mine_open else []
    return [
        *yours,
        *(
            Line("open", "One more reviewer" if yours or quorum.standing else "A reviewer", place)
            for place in places[len(yours) :]
        ),
    ]


def content_revision(case: Case) -> int:
    """The revision that brought the content the case has now."""
    brought = Revision.objects.filter(case=case, proposal=case.proposal, act__in=[Act.PROPOSED, Act.REVISED])
    number: int | None = brought.order_by("-number").values_list("number", flat=True).first()
    return number or 1


def approvals_of(case: Case, approved_revision: int) -> list[Line]:
    """The signature lines under an operation: the agent's, and those whose approvals made it."""
    rows = Vote.objects.select_related("reviewer__user").filter(case=case, revision=approved_revision - 1)
    last: dict[int, Vote] = {}
    for each in rows.order_by("-pk"):
        last.setdefault(each.reviewer_id, each)
    signed = sorted(
        (each for each in last.values() if each.verdict == Verdict.APPROVE), key=lambda each: each.pk
    )
    return [
        Line("agent", case.agent.name, f"revision {approved_revision - 1}"),
        *(
            Line("signed", str(each.reviewer), f"revision {each.revision}, {clock(each.at)}")
            for each in signed
        ),
    ]


def my_last_seen(case: Case, member: Member) -> Vote | None:
    """The person's last word on another content than the present one."""
    mine = Vote.objects.filter(case=case, reviewer=member).exclude(digest=case.proposal.digest)
    return mine.order_by("-pk").first()


def in_a_row(names: Sequence[str]) -> str:
    """Names as one writes them: ``Kim Oh and Ana Ruiz``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
