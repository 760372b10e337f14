"""Many at once over HTTP, each on a connection of its own: one is first, the others are told, nobody gets a 5xx."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from approvals.models import Case, Proposal, Revision, Vote
from approvals.states import CaseState
from ledger.models import Operation
from tests.api.conftest import Answer, Caller, by_key, refund, signed_in
from tests.worlds import World, case_in, new_world

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world(transactional_db: None) -> World:
    return new_world()


def at_once(calls: Sequence[Callable[[], Answer]]) -> list[Answer]:
    """The answers of calls that begin at the same moment."""
    ready = Barrier(len(calls))

    def run(call: Callable[[], Answer]) -> Answer:
        try:
            ready.wait(timeout=60)
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def statuses(answers: Sequence[Answer]) -> Counter[int]:
    return Counter(answer.status for answer in answers)


def proposing(world: World, **changes: Any) -> Callable[[], Answer]:
    """One proposal by a client of its own."""
    agent = by_key(world)
    return lambda: agent.propose(**changes)


def test_twenty_identical_proposals_are_one_case(world: World) -> None:
    answers = at_once([proposing(world) for _ in range(20)])

    assert statuses(answers) == {201: 1, 200: 19}
    assert len({answer.json["id"] for answer in answers}) == 1
    assert len({answer.etag for answer in answers}) == 1
    assert (Case.objects.count(), Proposal.objects.count(), Revision.objects.count()) == (1, 1, 1)


def test_of_two_contents_for_one_action_the_second_learns_of_the_first(world: World) -> None:
    answers = at_once([proposing(world), proposing(world, parameters=refund(amount_minor=99))])

    first, second = sorted(answers, key=lambda answer: answer.status)
    assert (first.status, second.status, second.problem) == (201, 409, "conflicting-proposal")
    assert second.json["case"] == first.headers["Location"]
    assert second.json["etag"] == first.etag
    assert (Case.objects.count(), Proposal.objects.count()) == (1, 1)


def test_two_organisations_do_not_meet(world: World) -> None:
    other = new_world()

    answers = at_once([proposing(each) for each in (world, other) for _ in range(4)])

    assert statuses(answers) == {201: 2, 200: 6}


def test_a_double_click_is_one_vote_and_one_operation(world: World) -> None:
    case = by_key(world).propose()
    clicks = [signed_in(world, "reviewer") for _ in range(6)]

    answers = at_once([lambda each=each: each.decide(case) for each in clicks])  # type: ignore[misc]

    assert statuses(answers) == {200: 6}
    assert sum("Idempotent-Replayed" in answer.headers for answer in answers) == 5
    assert (Vote.objects.count(), Operation.objects.count()) == (1, 1)


def test_of_approve_and_reject_at_once_one_stands(world: World) -> None:
    case = by_key(world).propose()
    rita, sam = signed_in(world, "reviewer"), signed_in(world, "second_reviewer")

    answers = at_once([lambda: rita.decide(case), lambda: sam.decide(case, "reject", reason="No.")])

    assert statuses(answers) == {200: 1, 412: 1}
    state = Case.objects.get().state
    assert (state, Operation.objects.count()) in {(CaseState.APPROVED, 1), (CaseState.REJECTED, 0)}
    assert Vote.objects.count() == 1


@pytest.mark.parametrize(("required", "expected"), [(1, {200: 1, 412: 1}), (2, {200: 2})])
def test_two_approvals_at_once_are_counted_under_the_lock(
    transactional_db: None, required: int, expected: dict[int, int]
) -> None:
    world = new_world(approvals_required=required)
    case = by_key(world).propose()
    people = [signed_in(world, "reviewer"), signed_in(world, "second_reviewer")]

    answers = at_once([lambda each=each: each.decide(case) for each in people])  # type: ignore[misc]

    assert statuses(answers) == expected
    assert (Case.objects.get().state, Operation.objects.count()) == ("approved", 1)


def test_of_a_revision_and_an_approval_at_once_only_what_was_seen_is_approved(world: World) -> None:
    agent, reviewer = by_key(world), signed_in(world, "reviewer")
    case = agent.propose()

    revised, decided = at_once(
        [
            lambda: agent.revise(case, parameters=refund(amount_minor=99)),
            lambda: reviewer.decide(case),
        ]
    )

    assert (revised.status, decided.status) in {(201, 412), (412, 200)}
    assert Operation.objects.count() == (1 if decided.status == 200 else 0)
    if decided.status == 200:
        assert decided.json["parameters"] == case.json["parameters"]


def test_withdrawing_and_approving_at_once_never_leaves_both(world: World) -> None:
    agent, reviewer = by_key(world), signed_in(world, "reviewer")
    case = agent.propose()

    withdrawn, decided = at_once([lambda: agent.withdraw(case), lambda: reviewer.decide(case)])

    assert {withdrawn.status, decided.status} == {200, 412}


def test_many_agents_proposing_again_after_a_failure_make_one_revision(world: World) -> None:
    failed = by_key(world).get(f"/cases/{case_in(world, CaseState.FAILED).pk}")
    before = Revision.objects.count()

    callers: list[Caller] = [by_key(world) for _ in range(6)]
    answers = at_once([lambda each=each: each.revise(failed) for each in callers])  # type: ignore[misc]

    assert statuses(answers) == {201: 1, 200: 5}
    assert Revision.objects.count() == before + 1
