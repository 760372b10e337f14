"""The agent's own acts on its case: new content, taking it back; and a reviewer's taking it back."""

from typing import Any

import pytest
from django.db import transaction

from accounts.actors import agent_actor
from accounts.models import Agent
from approvals import cases
from approvals.errors import (
    AlreadyExecuted,
    Illegal,
    InProgress,
    InvalidContent,
    NotFound,
    NotPermitted,
    StateForbids,
    VersionConflict,
)
from approvals.models import Proposal, Revision
from approvals.states import Act, CaseState
from approvals.tags import Tag
from ledger.states import ControlEventKind
from tests.worlds import (
    World,
    approved,
    case_in,
    claim,
    content,
    current,
    events,
    history,
    new_world,
    operation,
    proposed,
    revised,
    tag,
    withdrawn,
)

REVISABLE = (
    CaseState.PENDING,
    CaseState.RETURNED,
    CaseState.FAILED,
    CaseState.EXPIRED,
    CaseState.WITHDRAWN,
)
WITHDRAWABLE = (
    CaseState.PENDING,
    CaseState.RETURNED,
    CaseState.HELD,
    CaseState.APPROVED,
    CaseState.FAILED,
)
REFUSALS: dict[CaseState, type[Illegal]] = {
    CaseState.HELD: StateForbids,
    CaseState.APPROVED: StateForbids,
    CaseState.REJECTED: StateForbids,
    CaseState.EXPIRED: StateForbids,
    CaseState.WITHDRAWN: StateForbids,
    CaseState.EXECUTING: InProgress,
    CaseState.UNKNOWN: InProgress,
    CaseState.EXECUTED: AlreadyExecuted,
}


def a_second_agent(world: World) -> Agent:
    return Agent.objects.create(tenant=world.tenant, name="mail-agent", owner=world.member("admin"))


# Revising.


@pytest.mark.parametrize("state", CaseState)
def test_new_content_is_taken_where_the_table_says(world: World, state: CaseState) -> None:
    case = case_in(world, state)
    before = current(case)
    proposals = Proposal.objects.count()
    if state in REVISABLE:
        after = revised(world, case, amount_minor=99_000)
        assert (after.state, after.revision) == ("pending", before.revision + 1)
        assert current(case).proposal.sentence == "Refund 990.00 EUR on ch_1842"
        assert history(case)[-1] == (
            after.revision,
            "pending",
            Act.REVISED if state in (CaseState.PENDING, CaseState.RETURNED) else Act.PROPOSED,
        )
    else:
        with pytest.raises(REFUSALS[state]) as refusal:
            revised(world, case, amount_minor=99_000)
        assert type(refusal.value) is REFUSALS[state]
        assert (current(case).state, current(case).revision) == (state, before.revision)
        assert Proposal.objects.count() == proposals


def test_every_earlier_content_is_kept(world: World) -> None:
    case = proposed(world)
    revised(world, case, amount_minor=1)
    revised(world, case, amount_minor=2)
    amounts = Revision.objects.filter(case=case).order_by("number")
    assert list(amounts.values_list("proposal__amount_minor", flat=True)) == [125_000, 1, 2]


def test_the_same_revision_sent_twice_is_answered_once_more(world: World) -> None:
    case = proposed(world)
    seen = tag(case)
    revised(world, case, seen=seen, amount_minor=1)

    again = cases.revise(actor=world.agent, case_id=case.pk, seen=seen, content=content(amount_minor=1))

    assert again.replayed
    assert again.case.revision == 2
    assert (Proposal.objects.count(), Revision.objects.count()) == (2, 2)
    assert not events()


@pytest.mark.parametrize("other", [{"amount_minor": 2}, {"amount_minor": 1, "rationale": "Worded anew."}])
def test_another_content_for_a_revision_that_is_over_is_a_conflict(
    world: World, other: dict[str, Any]
) -> None:
    case = proposed(world)
    seen = tag(case)
    revised(world, case, seen=seen, amount_minor=1)
    with pytest.raises(VersionConflict):
        revised(world, case, seen=seen, **other)
    (event,) = events(ControlEventKind.VERSION_CONFLICT)
    assert (event.source, event.subject) == ("agent:refund-agent", case.pk)
    assert current(case).proposal.amount_minor == 1


def test_a_wrong_digest_in_the_tag_is_a_conflict(world: World) -> None:
    case = proposed(world)
    with pytest.raises(VersionConflict):
        revised(world, case, seen=Tag(1, "0" * 8), amount_minor=1)


def test_content_the_tool_cannot_take_leaves_the_case_as_it_is(world: World) -> None:
    case = proposed(world)
    with pytest.raises(InvalidContent):
        revised(world, case, amount_minor=0)
    assert (current(case).revision, Proposal.objects.count()) == (1, 1)


@pytest.mark.parametrize("who", ["reviewer", "admin"])
def test_no_person_revises_for_the_agent(world: World, who: str) -> None:
    case = proposed(world)
    with pytest.raises(NotPermitted):
        cases.revise(
            actor=world.person(who), case_id=case.pk, seen=tag(case), content=content(amount_minor=1)
        )
    assert current(case).revision == 1


def test_another_agent_of_the_organisation_revises_nothing(world: World) -> None:
    case = proposed(world)
    other = agent_actor(a_second_agent(world))
    with pytest.raises(NotPermitted):
        cases.revise(actor=other, case_id=case.pk, seen=tag(case), content=content(amount_minor=1))
    with pytest.raises(NotPermitted):
        cases.withdraw(actor=other, case_id=case.pk, seen=tag(case))
    assert current(case).revision == 1


def test_an_agent_of_another_organisation_finds_no_such_case(world: World) -> None:
    case, stranger = proposed(world), new_world().agent
    with pytest.raises(NotFound):
        cases.revise(actor=stranger, case_id=case.pk, seen=tag(case), content=content())
    with pytest.raises(NotFound):
        cases.withdraw(actor=stranger, case_id=case.pk, seen=tag(case))
    with pytest.raises(NotFound):
        cases.visible(actor=stranger, case_id=case.pk)
    assert cases.visible(actor=world.agent, case_id=case.pk) == case
    assert not events()


# Withdrawing.


@pytest.mark.parametrize("state", CaseState)
@pytest.mark.parametrize("who", ["agent", "reviewer"])
def test_an_action_is_taken_back_where_the_table_says(world: World, state: CaseState, who: str) -> None:
    case = case_in(world, state)
    before = current(case)
    actor = world.agent if who == "agent" else world.reviewer
    if state in WITHDRAWABLE:
        answer = cases.withdraw(actor=actor, case_id=case.pk, seen=tag(case), reason="Paid by voucher.")
        assert not answer.replayed
        assert (current(case).state, current(case).revision) == ("withdrawn", before.revision + 1)
        last = Revision.objects.get(case=case, number=before.revision + 1)
        assert (last.act, last.actor_name, last.reason) == ("withdrawn", actor.name, "Paid by voucher.")
    elif state == CaseState.WITHDRAWN and who == "agent":
        assert cases.withdraw(actor=actor, case_id=case.pk, seen=Tag(1, tag(case).digest)).replayed
    else:
        with transaction.atomic(), pytest.raises(REFUSALS[state]) as refusal:
            cases.withdraw(actor=actor, case_id=case.pk, seen=tag(case))
        assert type(refusal.value) is REFUSALS[state]
        assert (current(case).state, current(case).revision) == (state, before.revision)


def test_withdrawn_after_approval_and_before_the_claim_is_never_claimed(world: World) -> None:
    case = approved(world)
    withdrawn(world, case)

    it = operation(case)
    assert (it.state, it.reason) == ("failed_before_commit", "withdrawn")
    assert claim() == []


def test_nothing_is_taken_back_after_the_claim(world: World) -> None:
    case = approved(world)
    (grant,) = claim()
    with pytest.raises(InProgress):
        withdrawn(world, case)
    assert operation(case).state == "started"
    assert operation(case).token == grant.token


def test_taking_back_twice_is_answered_once_more(world: World) -> None:
    case = proposed(world)
    seen = tag(case)
    first = cases.withdraw(actor=world.agent, case_id=case.pk, seen=seen)
    second = cases.withdraw(actor=world.agent, case_id=case.pk, seen=seen)
    assert (first.replayed, second.replayed) == (False, True)
    assert history(case) == [(1, "pending", "proposed"), (2, "withdrawn", "withdrawn")]


def test_taking_back_what_somebody_has_changed_is_a_conflict(world: World) -> None:
    case = proposed(world)
    seen = tag(case)
    revised(world, case, amount_minor=1)
    with pytest.raises(VersionConflict):
        cases.withdraw(actor=world.reviewer, case_id=case.pk, seen=seen)
    assert current(case).state == "pending"
    assert [event.source for event in events(ControlEventKind.VERSION_CONFLICT)] == ["person:Rita Demo"]


@pytest.mark.parametrize("who", ["operator", "admin", "auditor"])
def test_who_is_no_reviewer_takes_nothing_back(world: World, who: str) -> None:
    case = proposed(world)
    with pytest.raises(NotPermitted):
        cases.withdraw(actor=world.person(who), case_id=case.pk, seen=tag(case))
    assert current(case).state == "pending"
