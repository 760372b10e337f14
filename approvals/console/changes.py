"""With which earlier content a case page compares the present one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from approvals.console import signatures
from approvals.console.cases import address
from approvals.console.comparison import Comparison, compare
from approvals.console.entrance import Visitor
from approvals.models import Case, Revision, Vote
from approvals.templatetags.times import clock


@dataclass(frozen=True, slots=True)
class Choice:
    """Another revision one can compare with."""

    url: str
    label: str
    current: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed since one revision, and since which others one could ask."""

    title: str
    since: int
    now: int
    comparison: Comparison
    choices: Sequence[Choice]


def changes(
    visitor: Visitor, case: Case, revisions: Sequence[Revision], *, asked: str, origin: str
) -> Changes | None:
    """Since the revision asked for, else since the one this person voted on, else since the previous content.

    None while the case has had no other content.
    """
    others = [each.number for each in revisions if each.proposal_id != case.proposal_id]
    if not others:
        return None
    vote = _vote_on(others, visitor, case)
    since = _since(others, vote, asked)
    earlier = Revision.objects.select_related("proposal__policy", "proposal__tool_version").get(
        case=case, number=since
    )
    return Changes(
        title=_title(since, others, vote),
        since=since,
        now=signatures.content_revision(case),
        comparison=compare(earlier.proposal, case.proposal),
        choices=[
            Choice(address(case.pk, origin, since=str(number)) + "#changes", label, number == since)
            for number, label in sorted(_labels(since, others, vote).items())
        ],
    )


def _vote_on(others: Sequence[int], visitor: Visitor, case: Case) -> Vote | None:
    vote = signatures.my_last_seen(case, visitor.member)
    return vote if vote is not None and vote.revision in others else None


def _since(others: Sequence[int], vote: Vote | None, asked: str) -> int:
    if asked.isascii() and asked.isdigit() and len(asked) < 10 and int(asked) in others:
        return int(asked)
    return vote.revision if vote is not None else max(others)


def _title(since: int, others: Sequence[int], vote: Vote | None) -> str:
    if vote is not None and since == vote.revision:
        return "Changed since you voted"
    return (
        "Changed since the previous revision" if since == max(others) else f"Changed since revision {since}"
    )


def _labels(since: int, others: Sequence[int], vote: Vote | None) -> Mapping[int, str]:
    """The first and the latest other content, the one asked for, and the one this person voted on."""
    labels = {number: f"Since revision {number}" for number in (min(others), max(others), since)}
    if vote is not None:
        labels[vote.revision] = f"Since your vote on {vote.revision}, {clock(vote.at)}"
    return labels
