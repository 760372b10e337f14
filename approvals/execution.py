"""The case's side of claim and recording: what stands, what moves, and what an outcome makes of it.

The ledger calls what it works on a subject; here that is a case.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from approvals import proposals, votes
from approvals.models import Case
from approvals.states import Act, CaseState
from ledger import clock, findings
from ledger.claims import Picked
from ledger.sql import Queries
from ledger.states import OperationState

QUERIES = Queries(Path(__file__).with_name("queries.sql"))


class Verb(Enum):
    """What the approving side says to a picked operation."""

    MOVED = "moved"
    """Its case went to executing: grant it."""
    BUSY = "busy"
    """Somebody is at the case, or a finding is open: later."""
    STALE = "stale"
    """It is no longer to happen: end it, with the reason."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The verb, and the reason where it is not MOVED."""

    verb: Verb
    reason: str = ""


_MOVED = Answer(Verb.MOVED)


def advance(picked: Sequence[Picked], *, worker: str) -> dict[int, Answer]:
    """Takes the cases of picked, not-started operations to executing; answers by order id.

    A case whose approval no longer stands goes to expired, pending or failed instead, in the same transaction.
    """
    answers = _judge(picked)
    moves: dict[tuple[CaseState, Act], list[tuple[Picked, str]]] = {}
    for each in picked:
        answer = answers[each.order_id]
        if (
            answer.verb is not Verb.BUSY and answer.reason != "not_approved"
        ):  # that case has moved on by itself
            moves.setdefault(_MOVES[answer.verb, answer.reason], []).append((each, answer.reason))
    for (state, act), group in moves.items():
        moved = _advance(
            [each.subject for each, _ in group],
            [CaseState.APPROVED],
            state,
            act,
            worker,
            [why for _, why in group],
        )
        if len(moved) != len(group):
            raise RuntimeError(f"{len(group)} locked cases were to become {state}, {len(moved)} did.")
    return answers


# Where a claim's answer takes the case.
_MOVES: Mapping[tuple[Verb, str], tuple[CaseState, Act]] = {
    (Verb.MOVED, ""): (CaseState.EXECUTING, Act.CLAIMED),
    (Verb.STALE, "expired"): (CaseState.EXPIRED, Act.EXPIRED),
    (Verb.STALE, "approval_lapsed"): (CaseState.PENDING, Act.LAPSED),
    (Verb.STALE, "resource_moved"): (CaseState.FAILED, Act.STOPPED),
    (Verb.STALE, "over_value_limit"): (CaseState.FAILED, Act.STOPPED),
    (Verb.STALE, "content_altered"): (CaseState.FAILED, Act.STOPPED),
}


def _judge(picked: Sequence[Picked]) -> dict[int, Answer]:
    cases = {row.id: row for row in QUERIES.rows("lock_cases", cases=[each.subject for each in picked])}
    disputed = findings.disputed([each.subject for each in picked])
    approvals = votes.standing_approvals((each.subject, each.approved_revision - 1) for each in picked)
    altered = _altered(cases, picked)
    return {
        each.order_id: _answer(each, cases.get(each.subject), each.subject in disputed, approvals, altered)
        for each in picked
    }


def _answer(
    picked: Picked, case: Any | None, disputed: bool, approvals: Mapping[int, set[int]], altered: set[int]
) -> Answer:
    if case is None:
        return Answer(Verb.BUSY, "case_busy")
    if case.state != CaseState.APPROVED or case.revision != picked.approved_revision:
        return Answer(Verb.STALE, "not_approved")
    if picked.subject in altered:
        return Answer(Verb.STALE, "content_altered")
    if disputed:
        return Answer(Verb.BUSY, "finding_open")
    if case.late:
        return Answer(Verb.STALE, "expired")
    if len(approvals.get(picked.subject, ())) < case.approvals_required:
        return Answer(Verb.STALE, "approval_lapsed")
    if picked.refusal is not None:
        return Answer(Verb.STALE, picked.refusal)
    return _MOVED


def _altered(cases: Iterable[int], picked: Sequence[Picked]) -> set[int]:
    """Cases whose stored content is not, byte for byte, what was approved."""
    approved = {each.subject: (each.digest, each.fingerprint) for each in picked}
    return {
        case.pk
        for case in Case.objects.filter(pk__in=list(cases)).select_related(
            "proposal__tool_version", "proposal__policy"
        )
        if approved[case.pk] != (case.proposal.digest, case.proposal.fingerprint)
        or not proposals.intact(case)
    }


def standing(picked: Sequence[Picked]) -> set[int]:
    """Orders of unresolved operations whose approval still stands: only these may be sent (again)."""
    subjects = {each.subject: each for each in picked}
    rows = Case.objects.filter(
        pk__in=list(subjects), state__in=[CaseState.EXECUTING, CaseState.UNKNOWN]
    ).values_list("pk", "proposal__expires_at", "proposal__policy__approvals_required")
    disputed = findings.disputed(subjects)
    approvals = votes.standing_approvals((each.subject, each.approved_revision - 1) for each in picked)
    altered = _altered(subjects, picked)
    now = clock.now()
    return {
        subjects[pk].order_id
        for pk, expires_at, required in rows
        if expires_at > now and len(approvals.get(pk, ())) >= required and pk not in disputed | altered
    }


def fail_never_sent(subjects: Sequence[int], *, worker: str) -> set[int]:
    """Ends executing cases whose operation was never sent and is no longer to be; returns those that nobody is at."""
    free = [row.id for row in QUERIES.rows("lock_cases", cases=list(subjects))]
    moved = _advance(
        free, [CaseState.EXECUTING], CaseState.FAILED, Act.STOPPED, worker, ["never_sent"] * len(free)
    )
    if len(moved) != len(free):
        raise RuntimeError(f"{len(free)} executing cases were to fail, {len(moved)} did.")
    return set(free)


def lock_case(subject: int) -> None:
    """Waits for the case's row and holds it: whoever opens a finding about a case locks it first."""
    Case.objects.select_for_update(no_key=True).only("pk").get(pk=subject)


def settle(outcomes: Mapping[int, tuple[OperationState, str]], *, worker: str) -> None:
    """Takes cases where their operations' outcomes lead: {case id: (operation state, reason)}; waits for locks."""
    for operation_state, (sources, state, act) in _SETTLED.items():
        group = {case: why for case, (became, why) in outcomes.items() if became == operation_state}
        if not group:
            continue
        moved = _advance(list(group), sources, state, act, worker, list(group.values()))
        if len(moved) != len(group):
            raise RuntimeError(
                f"{len(group)} cases were to become {state}, {len(moved)} did: ledger and cases disagree."
            )


_SETTLED: Mapping[OperationState, tuple[list[CaseState], CaseState, Act]] = {
    OperationState.COMMITTED: ([CaseState.EXECUTING, CaseState.UNKNOWN], CaseState.EXECUTED, Act.EXECUTED),
    OperationState.FAILED_BEFORE_COMMIT: (
        [CaseState.EXECUTING, CaseState.UNKNOWN],
        CaseState.FAILED,
        Act.FAILED,
    ),
    OperationState.OUTCOME_UNKNOWN: ([CaseState.EXECUTING], CaseState.UNKNOWN, Act.LOST_SIGHT),
}


def _advance(
    cases: list[int], sources: list[CaseState], state: CaseState, act: Act, worker: str, reasons: list[str]
) -> list[Any]:
    return QUERIES.rows(
        "advance_cases",
        cases=cases,
        sources=[source.value for source in sources],
        state=state.value,
        act=act.value,
        actor=worker,
        reasons=reasons,
    )
