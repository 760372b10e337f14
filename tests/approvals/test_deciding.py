"""One person's word: who may say it, about what, in which state, and what is refused."""

import json

import pytest
from django.db import transaction
from pytest_django import DjangoCaptureOnCommitCallbacks

from accounts.models import Member, Role
from approvals.errors import (
    AlreadyDecided,
    AlreadyExecuted,
    AmountMismatch,
    DeadlinePassed,
    Disputed,
    EarlierOperationLive,
    Illegal,
    InProgress,
    NotFound,
    NotPermitted,
    PersonRequired,
    ReasonRequired,
    SelfApproval,
    StateForbids,
    VersionConflict,
)
from approvals.models import Revision, Vote
from approvals.states import CaseState, Verdict
from approvals.tags import Tag
from ledger.identity import idempotency_key
from ledger.models import Finding, Operation, Order
from ledger.states import ControlEventKind
from tests.worlds import (
    World,
    approve,
    approved,
    case_in,
    current,
    events,
    history,
    make_late,
    new_world,
    open_finding,
    operation,
    proposed,
    revised,
    say,
    switch_off,
    tag,
    triggers_off,
)

LEADS_TO = {
    (CaseState.PENDING, Verdict.APPROVE): CaseState.APPROVED,
    (CaseState.PENDING, Verdict.REJECT): CaseState.REJECTED,
    (CaseState.PENDING, Verdict.REQUEST_CHANGES): CaseState.RETURNED,
    (CaseState.PENDING, Verdict.HOLD): CaseState.HELD,
    (CaseState.RETURNED, Verdict.REJECT): CaseState.REJECTED,
    (CaseState.HELD, Verdict.REJECT): CaseState.REJECTED,
    (CaseState.HELD, Verdict.RELEASE): CaseState.PENDING,
    (CaseState.APPROVED, Verdict.REVOKE): CaseState.PENDING,
    (CaseState.REJECTED, Verdict.REOPEN): CaseState.PENDING,
}
"""What a word does; every other pair of state and verdict is refused."""

REFUSALS: dict[CaseState, type[Illegal]] = {
    CaseState.PENDING: StateForbids,
    CaseState.RETURNED: StateForbids,
    CaseState.HELD: StateForbids,
    CaseState.APPROVED: AlreadyDecided,
    CaseState.REJECTED: AlreadyDecided,
    CaseState.WITHDRAWN: StateForbids,
    CaseState.EXPIRED: StateForbids,
    CaseState.EXECUTING: InProgress,
    CaseState.UNKNOWN: InProgress,
    CaseState.EXECUTED: AlreadyExecuted,
    CaseState.FAILED: StateForbids,
}

WRITTEN = (
    Revision,
    Vote,
    Order,
    Operation,
)


def rows() -> list[int]:
    return [model._default_manager.count() for model in WRITTEN]


# What an approval does.


def test_the_last_approval_approves_the_case_and_writes_its_operation(world: World) -> None:
    case = proposed(world, expects={"resource_version": 0})

    answer = say(
        Verdict.APPROVE, case, world.reviewer, reason_code="lost_in_transit", reason="Carrier agrees."
    )

    now = current(case)
    assert not answer.replayed
    assert (now.state, now.revision) == ("approved", 2)
    assert history(case) == [(1, "pending", "proposed"), (2, "approved", "approved")]
    revision = Revision.objects.get(case=case, number=2)
    assert (revision.actor_kind, revision.actor_name) == ("person", "Rita Demo")
    assert (revision.reason_code, revision.reason) == ("lost_in_transit", "Carrier agrees.")
    vote = Vote.objects.get()
    assert (vote.revision, vote.verdict, vote.digest) == (1, "approve", now.proposal.digest)
    it = operation(case)
    order = it.order
    assert (it.state, it.token, it.worker, it.attempt_count) == ("not_started", None, None, 0)
    assert it.action_key == case.action_key
    assert (order.approved_revision, order.subject, order.expected_version) == (2, case.pk, 0)
    assert (order.fingerprint, order.digest) == (now.proposal.fingerprint, now.proposal.digest)
    assert (order.amount_minor, order.currency) == (125_000, "EUR")
    assert it.resource.name == "order:88213"


def test_the_operation_has_the_key_of_the_revision_the_approval_made(world: World) -> None:
    case = proposed(world)
    case = revised(world, case, amount_minor=1)
    approve(case, world.reviewer)
    assert operation(case).order.key == idempotency_key(
        tenant=world.tenant.pk,
        reference="1842",
        action="refund",
        target="order:88213",
        step=1,
        approved_revision=3,
    )


def test_the_order_is_rendered_once_as_canonical_json(world: World) -> None:
    body = operation(approved(world)).order.body
    assert body == '{"amount":125000,"charge":"ch_1842","currency":"EUR"}'
    assert json.loads(body)["amount"] == 125_000


def test_the_doorbell_rings_once_after_the_commit(
    world: World, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    with django_capture_on_commit_callbacks() as rings:
        case = approved(world)
        say(Verdict.APPROVE, case, world.reviewer, seen=Tag(1, tag(case).digest))
    assert len(rings) == 1


# Every verdict in every state.


@pytest.mark.parametrize("state", CaseState)
def test_a_word_moves_the_case_where_the_table_says_or_is_refused(world: World, state: CaseState) -> None:
    case = case_in(world, state)
    for verdict in Verdict:
        before = current(case)
        with transaction.atomic():
            if (target := LEADS_TO.get((state, verdict))) is not None:
                after = say(verdict, case, world.second_reviewer).case
                assert (after.state, after.revision) == (target, before.revision + 1)
            else:
                counts = rows()
                with pytest.raises(REFUSALS[state]) as refusal:
                    say(verdict, case, world.second_reviewer)
                assert type(refusal.value) is REFUSALS[state]
                assert (current(case).state, current(case).revision) == (state, before.revision)
                assert rows() == counts
                assert [each.detail["refusal"] for each in events()] == [REFUSALS[state].__name__]
            transaction.set_rollback(True)


# Wrong person.


@pytest.mark.parametrize("handle", ["operator", "admin", "auditor"])
def test_only_a_reviewer_decides(world: World, handle: str) -> None:
    case = proposed(world)
    before = rows()
    for verdict in Verdict:
        with pytest.raises(NotPermitted):
            say(verdict, case, world.person(handle))
    assert rows() == before
    refused = events(ControlEventKind.REFUSED_ACT)
    assert len(refused) == len(events()) == len(Verdict)
    assert {(each.source, each.action, each.subject) for each in refused} == {
        (world.person(handle).source, "refund", case.pk)
    }


def test_an_agent_never_decides_not_even_with_a_right_tag(world: World) -> None:
    case = proposed(world)
    for verdict in Verdict:
        with pytest.raises(PersonRequired):
            say(verdict, case, world.agent)
    assert not Vote.objects.exists()


def test_a_reviewer_of_another_organisation_finds_no_such_case(world: World) -> None:
    case, other = proposed(world), new_world()
    with pytest.raises(NotFound):
        say(Verdict.APPROVE, case, other.reviewer)
    assert not Vote.objects.exists()
    assert not events()


@pytest.mark.parametrize("switched_off", ["member", "user", "role"])
def test_a_reviewer_who_is_switched_off_decides_nothing(world: World, switched_off: str) -> None:
    case = proposed(world)
    switch_off(world, "reviewer", switched_off)
    with pytest.raises(NotPermitted):
        say(Verdict.APPROVE, case, world.reviewer)


def test_who_stands_behind_the_agent_cannot_approve_what_it_proposes(world: World) -> None:
    make_owner_a_reviewer(world)
    case = proposed(world)
    with pytest.raises(SelfApproval):
        say(Verdict.APPROVE, case, world.person("admin"))
    assert current(case).state == "pending"
    assert not Vote.objects.exists()


@pytest.mark.parametrize(
    ("state", "verdict"), [(CaseState.HELD, Verdict.RELEASE), (CaseState.REJECTED, Verdict.REOPEN)]
)
def test_who_stands_behind_the_agent_cannot_bring_it_back_either(
    world: World, state: CaseState, verdict: Verdict
) -> None:
    make_owner_a_reviewer(world)
    case = case_in(world, state)
    with pytest.raises(SelfApproval):
        say(verdict, case, world.person("admin"))


@pytest.mark.parametrize("verdict", [Verdict.REJECT, Verdict.REQUEST_CHANGES, Verdict.HOLD])
def test_who_stands_behind_the_agent_may_stop_it(world: World, verdict: Verdict) -> None:
    make_owner_a_reviewer(world)
    say(verdict, case := proposed(world), world.person("admin"))
    assert current(case).state != "pending"


# A stale page.


@pytest.mark.parametrize("verdict", Verdict)
def test_a_word_on_an_earlier_revision_is_a_conflict_counted_once(world: World, verdict: Verdict) -> None:
    case = proposed(world)
    seen, digest = tag(case), case.proposal.digest
    revised(world, case, amount_minor=999)
    before = rows()[:-1]

    with pytest.raises(VersionConflict) as refusal:
        say(verdict, case, world.reviewer, seen=seen, digest=digest)

    assert (refusal.value.seen_revision, refusal.value.case and refusal.value.case.revision) == (1, 2)
    assert rows()[:-1] == before
    (event,) = events(ControlEventKind.VERSION_CONFLICT)
    assert (event.source, event.action, event.subject) == ("person:Rita Demo", "refund", case.pk)
    assert (event.detail["seen"], event.detail["now"]) == (1, 2)


def test_a_word_on_a_revision_that_does_not_exist_yet_is_a_conflict(world: World) -> None:
    case = proposed(world)
    with pytest.raises(VersionConflict):
        say(Verdict.APPROVE, case, world.reviewer, seen=Tag(2, tag(case).digest))


def test_the_right_revision_with_the_digest_of_another_content_is_a_conflict(world: World) -> None:
    case = proposed(world)
    other = proposed(world, "1843", amount_minor=1).proposal.digest
    with pytest.raises(VersionConflict):
        say(Verdict.APPROVE, case, world.reviewer, digest=other)
    with pytest.raises(VersionConflict):
        say(Verdict.APPROVE, case, world.reviewer, seen=Tag(1, other[:8]))
    assert len(events(ControlEventKind.VERSION_CONFLICT)) == 2
    assert not Vote.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_conflict_is_counted_in_a_transaction_of_its_own(world: World) -> None:
    case = proposed(world)
    seen, digest = tag(case), case.proposal.digest
    revised(world, case, amount_minor=999)

    with pytest.raises(VersionConflict):
        say(Verdict.APPROVE, case, world.reviewer, seen=seen, digest=digest)

    # Nothing is open any more: what is found now has been committed, and the refused transaction has not.
    assert not transaction.get_connection().in_atomic_block
    assert len(events(ControlEventKind.VERSION_CONFLICT)) == 1
    assert not Vote.objects.exists()


# What a policy and a page ask for.


@pytest.mark.parametrize("verdict", [Verdict.REJECT, Verdict.REQUEST_CHANGES])
@pytest.mark.parametrize("reason", ["", " \n"])
def test_turning_down_needs_a_reason_for_the_agent(world: World, verdict: Verdict, reason: str) -> None:
    with pytest.raises(ReasonRequired):
        say(verdict, proposed(world), world.reviewer, reason=reason)
    assert not Vote.objects.exists()


def test_reopening_needs_a_reason(world: World) -> None:
    case = case_in(world, CaseState.REJECTED)
    with pytest.raises(ReasonRequired):
        say(Verdict.REOPEN, case, world.second_reviewer, reason="")


@pytest.mark.parametrize("tier", [0, 1])
def test_a_low_tier_asks_for_nothing_more_than_the_click(tier: int, db: None) -> None:
    world = new_world(tier=tier)
    say(Verdict.APPROVE, case := proposed(world), world.reviewer, reason="")
    assert current(case).state == "approved"


@pytest.mark.parametrize("tier", [2, 3])
def test_a_high_tier_asks_for_a_reason(tier: int, db: None) -> None:
    world = new_world(tier=tier)
    case = proposed(world)
    with pytest.raises(ReasonRequired):
        say(Verdict.APPROVE, case, world.reviewer, reason=" ", typed_amount=125_000)
    assert not Vote.objects.exists()
    say(Verdict.APPROVE, case, world.reviewer, reason="Seen.", typed_amount=125_000)
    assert current(case).state == "approved"


@pytest.mark.parametrize("typed", [None, 0, 1250, 124_999, 12_500_000])
def test_the_highest_tier_asks_for_the_amount_typed(typed: int | None, db: None) -> None:
    world = new_world(tier=3)
    case = proposed(world)
    with pytest.raises(AmountMismatch):
        say(Verdict.APPROVE, case, world.reviewer, typed_amount=typed)
    assert not Vote.objects.exists()
    assert current(case).state == "pending"


def test_the_policy_of_the_proposal_counts_not_the_newest(world: World) -> None:
    case = proposed(world)
    policy = case.proposal.policy
    policy.pk, policy.version, policy.approvals_required = None, 2, 2
    policy._state.adding = True
    policy.save()
    approve(case, world.reviewer)
    assert current(case).state == "approved"
    approve(later := proposed(world, "1843"), world.reviewer)
    assert current(later).state == "pending"


def test_nothing_is_approved_after_its_deadline(world: World) -> None:
    case = proposed(world)
    make_late(case)
    with pytest.raises(DeadlinePassed):
        say(Verdict.APPROVE, case, world.reviewer)
    assert current(case).state == "pending"
    assert not Vote.objects.exists()


def test_nothing_is_approved_while_a_finding_about_it_is_open(world: World) -> None:
    case = proposed(world)
    open_finding(world, case)
    with pytest.raises(Disputed):
        say(Verdict.APPROVE, case, world.reviewer)
    assert not Vote.objects.exists()

    Finding.objects.update(closed_at="2026-01-01T00:00:00Z", closed_by="person:Demo")
    say(Verdict.APPROVE, case, world.reviewer)
    assert current(case).state == "approved"


def test_a_finding_about_one_case_holds_up_no_other(world: World) -> None:
    open_finding(world, proposed(world, "1843"))
    approve(case := proposed(world), world.reviewer)
    assert current(case).state == "approved"


def test_a_finding_is_open_once_however_often_it_is_found(world: World) -> None:
    case = proposed(world)
    assert open_finding(world, case) is True
    assert open_finding(world, case) is False
    assert Finding.objects.count() == 1


# No second life beside the first.


def test_an_approval_beside_a_live_operation_of_the_action_is_refused(world: World) -> None:
    case = case_in(world, CaseState.FAILED)
    revised(world, case)
    with transaction.atomic():
        with triggers_off():
            Operation.objects.update(state="started", settled_at=None, due_at="2026-01-01T00:00:00Z")
        before = rows()
        with pytest.raises(EarlierOperationLive):
            say(Verdict.APPROVE, case, world.reviewer)
        assert rows() == before
        assert current(case).state == "pending"
        transaction.set_rollback(True)


def make_owner_a_reviewer(world: World) -> None:
    Member.objects.filter(pk=world.member("admin").pk).update(roles=[Role.ADMIN, Role.REVIEWER])
