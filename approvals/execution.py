"""The case's side of claim and recording: what stands, what moves, and what an outcome makes of it.

The ledger calls what it works on a subject; here that is a case.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from accounts.sql import Queries
from approvals import proposals, votes
from approvals.models import Case
from approvals.states import Act, CaseState
from ledger import findings
from ledger.picks import Picked
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
    subjects = [each.subject for each in picked]
    cases = {row.id: row for row in QUERIES.rows("lock_cases", cases=subjects)}
    disputed = findings.disputed(subjects)
    approvals = votes.standing_approvals((each.subject, each.approved_revision - 1) for each in picked)
    return {
        each.order_id: _answer(each, cases.get(each.subject), each.subject in disputed, approvals)
        for each in picked
    }


def _answer(picked: Picked, case: Any | None, disputed: bool, approvals: Mapping[int, set[int]]) -> Answer:
    if case is None:
        return Answer(Verb.BUSY, "case_busy")
    if case.state != CaseState.APPROVED or case.revision != picked.approved_revision:
        return Answer(Verb.STALE, "not_approved")
    if _altered(case, picked):
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


def _altered(case: Any, picked: Picked) -> bool:
    """Whether the case's stored content is not, byte for byte, what was approved."""
    approved = (picked.digest, picked.fingerprint)
    return (case.digest, case.fingerprint) != approved or not proposals.intact(case)


def standing(picked: Sequence[Picked]) -> set[int]:
    """Orders of unresolved operations whose approval still stands: only these may be sent (again)."""
    subjects = {each.subject: each for each in picked}
    rows = QUERIES.rows("cases_to_stand", cases=list(subjects))
    disputed = findings.disputed(subjects)
    approvals = votes.standing_approvals((each.subject, each.approved_revision - 1) for each in picked)
    return {
        subjects[case.id].order_id
        for case in rows
        if not case.late
        and len(approvals.get(case.id, ())) >= case.approvals_required
        and case.id not in disputed
        and not _altered(case, subjects[case.id])
    }


def lock_free(subjects: Sequence[int]) -> set[int]:
    """Locks those of the cases that nobody is at; the others are left alone, not waited for."""
    return {row.id for row in QUERIES.rows("lock_cases", cases=list(subjects))}


def fail_never_sent(subjects: Sequence[int], *, worker: str) -> set[int]:
    """Ends executing cases whose operation was never sent and is no longer to be; returns those that nobody is at."""
    free = list(lock_free(subjects))
    moved = _advance(
        free, [CaseState.EXECUTING], CaseState.FAILED, Act.STOPPED, worker, ["never_sent"] * len(free)
    )
    if len(moved) != len(free):
        raise RuntimeError(f"{len(free)} executing cases were to fail, {len(moved)} did.")
    return set(free)


def traces(subjects: Sequence[int]) -> dict[int, str]:
    """{case id: the trace its agent gave}, for those that have one."""
    return {row.id: row.trace_id for row in QUERIES.rows("traces", cases=list(subjects))}


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
