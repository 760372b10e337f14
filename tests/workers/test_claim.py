"""The claim: what is granted, in which order, under which token; and what is looked at again before it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from accounts.models import Agent
from approvals.models import Case, Proposal, Revision
from approvals.states import CaseState, Verdict
from config.demo import seed
from ledger import budgets, clock
from ledger.models import Attempt, Finding, Operation, Order, Reservation, Resource, Tool, ToolVersion
from ledger.states import AttemptOutcome, BudgetSpan, ControlEventKind
from tests.worlds import (
    LEASE,
    World,
    approved,
    attempts,
    claim,
    claimed,
    current,
    due_at,
    events,
    history,
    make_late,
    new_world,
    open_finding,
    operation,
    proposed,
    recorded,
    revised,
    say,
    switch_off,
    triggers_off,
)
from workers import claims

SECOND = timedelta(seconds=1)


# What a grant is.


def test_a_claim_moves_case_and_operation_together(world: World) -> None:
    case = approved(world)
    before = clock.now()

    (grant,) = claim(worker="worker-a")

    now, it = current(case), operation(case)
    assert (now.state, now.revision) == ("executing", 3)
    assert history(case)[-1] == (3, "executing", "claimed")
    last = Revision.objects.get(case=case, number=3)
    assert (last.actor_kind, last.actor_name) == ("system", "worker-a")
    assert (it.state, it.token, it.worker, it.attempt_count) == ("started", grant.token, "worker-a", 1)
    assert it.due_at is not None
    assert timedelta(seconds=LEASE) <= it.due_at - before <= timedelta(seconds=LEASE + 5)
    (attempt,) = attempts(case)
    assert (attempt.number, attempt.token, attempt.worker) == (1, grant.token, "worker-a")
    assert (attempt.ended_at, attempt.outcome, attempt.sent) == (None, None, None)
    assert (it.resource.holder_id, it.resource.token) == (it.order_id, grant.token)


def test_a_grant_carries_the_frozen_order_and_may_be_sent(world: World) -> None:
    case = approved(world)
    (grant,) = claim()
    order = operation(case).order
    assert (grant.key, grant.body, grant.fingerprint) == (order.key, order.body, order.fingerprint)
    assert (grant.subject, grant.tool, grant.resource) == (case.pk, "refund", "order:88213")
    assert (grant.number, grant.state, grant.maybe_sent, grant.may_send) == (1, "started", False, True)


def test_what_is_not_approved_is_not_claimed(world: World) -> None:
    proposed(world)
    assert claim() == []


def test_what_is_claimed_is_not_claimed_again(world: World) -> None:
    approved(world)
    assert len(claim(worker="worker-a")) == 1
    assert claim(worker="worker-b") == []
    assert Attempt.objects.count() == 1


def test_what_is_due_later_is_not_claimed_yet(world: World) -> None:
    case = approved(world)
    Operation.objects.update(due_at=Now() + SECOND)
    assert claim() == []
    Operation.objects.update(due_at=Now())
    assert [grant.subject for grant in claim()] == [case.pk]


# One unresolved operation per resource.


@pytest.mark.parametrize(
    ("outcome", "frees"),
    [
        (AttemptOutcome.COMMITTED, True),
        (AttemptOutcome.REFUSED, True),
        (AttemptOutcome.UNCERTAIN, False),
        (AttemptOutcome.NOT_SENT, False),
        (AttemptOutcome.IN_PROGRESS, False),
    ],
)
def test_the_second_waits_until_the_first_is_final(
    world: World, outcome: AttemptOutcome, frees: bool
) -> None:
    first, second = approved(world), approved(world, "1843")
    (grant,) = claim()
    assert grant.subject == first.pk
    assert claim() == []

    recorded(grant, outcome)

    assert [each.subject for each in claim()] == ([second.pk] if frees else [])


def test_different_resources_are_claimed_side_by_side(world: World) -> None:
    subjects = {approved(world, str(number), target=f"order:{number}").pk for number in range(5)}
    assert {grant.subject for grant in claim()} == subjects


def test_the_same_name_in_two_organisations_is_two_resources(world: World) -> None:
    approved(world)
    approved(new_world())
    assert len(claim()) == 2
    assert Resource.objects.filter(name="order:88213").count() == 2


def test_the_longest_due_comes_first(world: World) -> None:
    first, second, third = (approved(world, reference) for reference in ("1", "2", "3"))
    Operation.objects.filter(order__subject=third.pk).update(due_at=Now() - 60 * SECOND)
    order = []
    for _ in range(3):
        (grant,) = claim()
        order.append(grant.subject)
        recorded(grant)
    assert order == [third.pk, first.pk, second.pk]


def test_a_hot_resource_hides_no_other(world: World) -> None:
    for number in range(12):
        approved(world, f"hot-{number}", target="order:hot")
    cold = {approved(world, f"cold-{number}", target=f"order:cold-{number}").pk for number in range(3)}
    subjects = {grant.subject for grant in claim(most=4)}
    assert cold < subjects
    assert len(subjects) == 4


def test_resources_that_are_held_do_not_hide_the_free_ones_behind(world: World) -> None:
    for number in range(8):
        approved(world, f"first-{number}", target=f"order:{number}")
    assert len(claim()) == 8
    for number in range(8):
        approved(world, f"second-{number}", target=f"order:{number}")
    free = approved(world, "free", target="order:free")

    found, after = [], 0
    for _ in range(3):
        claimed = claims.claim(worker="worker-b", most=2, after=after, lease=LEASE)
        grants, after = claimed.grants, claimed.go_on
        found += grants

    assert [grant.subject for grant in found] == [free.pk]


def test_resources_are_taken_in_turn(world: World) -> None:
    for number in range(6):
        approved(world, str(number), target=f"order:{number}")
    seen, after = [], 0
    while True:
        claimed = claims.claim(worker="worker-a", most=2, after=after, lease=LEASE)
        grants, after = claimed.grants, claimed.go_on
        seen += [grant.resource for grant in grants]
        if after == 0:
            break
    assert seen == [f"order:{number}" for number in range(6)]


def test_no_more_is_claimed_than_was_asked_for(world: World) -> None:
    for number in range(5):
        approved(world, str(number), target=f"order:{number}")
    assert [len(claim(most=2)) for _ in range(4)] == [2, 2, 1, 0]


# Tokens.


def test_tokens_go_on_where_the_resource_stands(world: World) -> None:
    first, second = approved(world), approved(world, "1843")
    Resource.objects.filter(name="order:88213").update(token=480)
    (grant,) = claim()
    assert (grant.subject, grant.token) == (first.pk, 481)
    recorded(grant)
    (grant,) = claim()
    assert (grant.subject, grant.token) == (second.pk, 482)
    assert world.resource().token == 482


def test_tokens_rise_with_every_grant_of_a_resource_whatever_the_operation(world: World) -> None:
    tokens = []
    for number in range(4):
        grant = claimed(world, str(number))
        tokens.append(grant.token)
        recorded(grant, AttemptOutcome.REFUSED)
    assert tokens == [1, 2, 3, 4]


# What is checked again.


def assert_ended(case: Case, state: CaseState, reason: str, *, act: str) -> None:
    it = operation(case)
    assert (it.state, it.reason, it.token, it.attempt_count) == ("failed_before_commit", reason, None, 0)
    assert (current(case).state, history(case)[-1][2]) == (state, act)
    assert it.resource.holder_id is None


def assert_counted(case: Case, kind: ControlEventKind, reason: str) -> None:
    (event,) = events()
    assert (event.kind, event.source, event.action) == (kind, "worker:worker-a", "refund")
    assert (event.subject, event.key, event.detail) == (
        case.pk,
        operation(case).order.key,
        {"reason": reason},
    )


def test_approved_in_time_and_claimed_too_late_is_never_sent(world: World) -> None:
    case = approved(world)
    make_late(case)
    assert claim() == []
    assert_ended(case, CaseState.EXPIRED, "expired", act="expired")
    assert_counted(case, ControlEventKind.REFUSED_CLAIM, "expired")


@pytest.mark.parametrize("how", ["role", "member", "user"])
def test_an_approval_whose_reviewer_may_no_longer_decide_has_lapsed(world: World, how: str) -> None:
    case = approved(world)
    switch_off(world, "reviewer", how)
    assert claim() == []
    assert_ended(case, CaseState.PENDING, "approval_lapsed", act="lapsed")
    assert_counted(case, ControlEventKind.REFUSED_CLAIM, "approval_lapsed")


def test_one_of_two_approvals_that_lapses_is_one_too_few(db: None) -> None:
    world = new_world(approvals_required=2)
    case = approved(world)
    switch_off(world, "second_reviewer", "role")
    assert claim() == []
    assert_ended(case, CaseState.PENDING, "approval_lapsed", act="lapsed")


def test_an_approval_by_who_has_come_to_stand_behind_the_agent_has_lapsed(world: World) -> None:
    case = approved(world)
    Agent.objects.filter(pk=case.agent_id).update(owner=world.member("reviewer"))
    assert claim() == []
    assert_ended(case, CaseState.PENDING, "approval_lapsed", act="lapsed")


def test_after_a_lapse_a_new_approval_is_claimed_under_a_new_key(world: World) -> None:
    case = approved(world)
    old = operation(case).order.key
    switch_off(world, "reviewer", "role")
    claim()
    say(Verdict.APPROVE, case, world.second_reviewer)
    (grant,) = claim()
    assert grant.key != old


def test_an_action_that_expects_another_version_of_its_resource_is_stopped(world: World) -> None:
    recorded(claimed(world))
    case = approved(world, "1843", expects={"resource_version": 0})
    assert world.resource().version == 1
    assert claim() == []
    assert_ended(case, CaseState.FAILED, "resource_moved", act="stopped")
    assert_counted(case, ControlEventKind.VERSION_CONFLICT, "resource_moved")


def test_an_action_that_expects_the_version_there_is_goes_on(world: World) -> None:
    recorded(claimed(world))
    approved(world, "1843", expects={"resource_version": 1})
    assert len(claim()) == 1


def test_only_one_of_two_actions_on_the_same_version_is_carried_out(world: World) -> None:
    first = approved(world, "1842", expects={"resource_version": 0})
    second = approved(world, "1843", expects={"resource_version": 0})
    (grant,) = claim()
    recorded(grant)
    assert claim() == []
    assert (current(first).state, current(second).state) == ("executed", "failed")


def test_an_action_that_did_not_happen_moves_no_version(world: World) -> None:
    recorded(claimed(world), AttemptOutcome.REFUSED)
    approved(world, "1843", expects={"resource_version": 0})
    assert len(claim()) == 1


@pytest.mark.parametrize("limits", [{"EUR": 124_999}, {"USD": 500_000}])
def test_an_amount_above_the_limit_of_its_tool_is_stopped(world: World, limits: dict[str, int]) -> None:
    case = approved(world)
    ToolVersion.objects.create(
        tool=Tool.objects.get(tenant=world.tenant, name="refund"),
        number=2,
        **{**seed.REFUND, "value_limits": limits},
    )
    assert claim() == []
    assert_ended(case, CaseState.FAILED, "over_value_limit", act="stopped")
    assert_counted(case, ControlEventKind.REFUSED_CLAIM, "over_value_limit")


ALTERATIONS: list[dict[str, Any]] = [
    {"material": '{"expects":{},"parameters":{"amount_minor":999,"currency":"EUR","payment":"ch_1842"}}'},
    {"material": "not JSON"},
    {"material": "[]"},
    {"material": "{}"},
    {"material": '{"expects":{},"parameters":7}'},
    {"material": '{"expects":{},"parameters":{"amount_minor":' + "9" * 30 + "}}"},
    {"sentence": "Refund 1.00 EUR on ch_1842"},
    {"rationale": "Another reason."},
    {"evidence": [{"statement": "another"}]},
    {"evidence": 7},
    {"evidence": [10**20]},
    {"fingerprint": "0" * 64},
    {"digest": "0" * 64},
]


@pytest.mark.parametrize("altered", ALTERATIONS, ids=lambda altered: str(altered)[:40])
def test_content_that_is_not_what_was_approved_is_stopped(world: World, altered: dict[str, Any]) -> None:
    case, other = approved(world), approved(world, "1843", target="order:2")
    with triggers_off():
        Proposal.objects.filter(pk=case.proposal_id).update(**altered)

    assert [grant.subject for grant in claim()] == [other.pk]

    assert_ended(case, CaseState.FAILED, "content_altered", act="stopped")
    assert_counted(case, ControlEventKind.REFUSED_CLAIM, "content_altered")


def test_facts_that_are_not_what_was_approved_are_stopped(world: World) -> None:
    case = approved(world)
    with triggers_off():
        Case.objects.update(target="order:other")
    assert claim() == []
    assert_ended(case, CaseState.FAILED, "content_altered", act="stopped")


def test_an_order_of_another_digest_is_stopped(world: World) -> None:
    case = approved(world)
    with triggers_off():
        Order.objects.update(digest="0" * 64)
    assert claim() == []
    assert_ended(case, CaseState.FAILED, "content_altered", act="stopped")


def test_an_operation_whose_case_has_gone_its_own_way_is_ended(world: World) -> None:
    case = approved(world)
    with triggers_off():
        Case.objects.filter(pk=case.pk).update(state="pending")
        Revision.objects.filter(case=case, number=2).update(state="pending")
    assert claim() == []
    it = operation(case)
    assert (it.state, it.reason) == ("failed_before_commit", "not_approved")
    assert (current(case).state, current(case).revision) == ("pending", 2)


def test_what_a_finding_is_open_about_waits_and_is_not_ended(world: World) -> None:
    case = approved(world)
    open_finding(world, case)

    assert claim() == []

    it = operation(case)
    assert (it.state, current(case).state) == ("not_started", "approved")
    assert it.due_at is not None
    assert it.due_at > clock.now()
    assert events() == []

    Finding.objects.update(closed_at=Now(), closed_by="person:Demo")
    Operation.objects.update(due_at=Now())
    assert len(claim()) == 1


def test_one_that_is_stopped_takes_no_other_of_its_batch_along(world: World) -> None:
    good = [approved(world, f"good-{number}", target=f"order:good-{number}") for number in range(3)]
    late, moved = approved(world, "late", target="order:late"), approved(world, "moved", target="order:moved")
    disputed = approved(world, "disputed", target="order:disputed")
    make_late(late)
    open_finding(world, disputed)
    with triggers_off():
        Order.objects.filter(subject=moved.pk).update(expected_version=7)

    assert {grant.subject for grant in claim()} == {case.pk for case in good}

    assert [current(case).state for case in (late, moved, disputed)] == ["expired", "failed", "approved"]
    assert sorted(event.detail["reason"] for event in events()) == ["expired", "resource_moved"]


def test_one_that_is_stopped_does_not_head_its_queue_for_ever(world: World) -> None:
    late, next_ = approved(world), approved(world, "1843")
    make_late(late)
    assert claim() == []
    assert [grant.subject for grant in claim()] == [next_.pk]


def test_after_it_was_stopped_it_can_be_proposed_again(world: World) -> None:
    recorded(claimed(world))
    case = approved(world, "1843", expects={"resource_version": 0})
    claim()
    revised(world, case, expects={"resource_version": 1})
    say(Verdict.APPROVE, case, world.reviewer)
    (grant,) = claim()
    assert grant.subject == case.pk


def test_a_claim_costs_as_many_statements_for_many_as_for_a_few(world: World) -> None:
    for number in range(12):
        approved(world, str(number), target=f"order:{number}")
    few, many = statements_of(most=2), statements_of(most=10)
    assert many == few


def statements_of(*, most: int) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert len(claim(most=most)) == most
    return len(captured)


def test_one_that_cannot_be_granted_is_put_off_and_keeps_no_other_from_its_claim(world: World) -> None:
    good, broken = approved(world), approved(world, "1843", target="order:2")
    with attempts_in_the_way(broken):
        assert [grant.subject for grant in claim()] == [good.pk]
    assert due_at(broken) > clock.now()


@pytest.mark.django_db(transaction=True)
def test_one_that_cannot_be_granted_is_put_off_where_a_budget_counts_it_too(world: World) -> None:
    budgets.make(
        tenant_id=world.tenant.pk, span=BudgetSpan.DAY, currency="EUR", limit_minor=10**9, by="person:Demo"
    )
    broken = approved(world)
    with attempts_in_the_way(broken):
        (resource_id,) = claims.claim(worker="worker-a", most=50, after=0, lease=LEASE).reserving
        assert claims.claim_reserving(worker="worker-a", resource_id=resource_id, lease=LEASE) == []
    assert due_at(broken) > clock.now()
    assert not Reservation.objects.exists()


@contextmanager
def attempts_in_the_way(case: Case) -> Iterator[None]:
    """As no statement of ours leaves it: the row of the next attempt is there already."""
    of = {"operation_id": operation(case).order_id, "number": 1}
    with triggers_off():
        Attempt.objects.create(
            **of, token=10**6, worker="w", started_at=Now(), ended_at=Now(), outcome=AttemptOutcome.BUSY
        )
    yield
    with triggers_off():
        Attempt.objects.filter(**of).delete()
