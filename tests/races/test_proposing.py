"""The same action proposed at once, the same agent's keys made at once: one, and the other is told so."""

import threading

from accounts import keys
from accounts.models import Agent, AgentKey
from approvals import cases, compensations, proposals
from approvals.errors import ConflictingProposal
from approvals.models import Case, Proposal, Revision
from ledger.claims import Grant
from ledger.states import ControlEventKind
from tests.races.rivals import Rival, race
from tests.worlds import World, claimed, content, events, proposed, recorded, version_with


def propose(world: World, **changes: object) -> cases.Proposed:
    facts = proposals.facts(reference="1842", action="refund", target="order:88213", step=1)
    return cases.propose(actor=world.agent, facts=facts, content=content(**changes))


def test_two_identical_proposals_at_once_are_one_case(world: World) -> None:
    won, lost = race(winner=lambda: propose(world), loser=lambda: propose(world))

    assert isinstance(won.value, cases.Proposed)
    assert isinstance(lost.value, cases.Proposed), lost.error
    assert (won.value.replayed, lost.value.replayed) == (False, True)
    assert lost.value.case.pk == won.value.case.pk
    assert (Case.objects.count(), Proposal.objects.count(), Revision.objects.count()) == (1, 1, 1)
    assert len(events(ControlEventKind.REPLAY)) == 1


def test_two_contents_of_one_action_at_once_are_a_conflict_for_the_second(world: World) -> None:
    won, lost = race(winner=lambda: propose(world), loser=lambda: propose(world, amount_minor=1))

    assert won.error is None
    assert isinstance(lost.error, ConflictingProposal)
    assert Case.objects.get().proposal.amount_minor == 125_000
    assert Proposal.objects.count() == 1
    assert len(events(ControlEventKind.FINGERPRINT_CONFLICT)) == 1


def test_a_crowd_of_identical_proposals_is_one_case_and_no_error(world: World) -> None:
    start = threading.Barrier(8)

    def at_once() -> cases.Proposed:
        start.wait()
        return propose(world)

    crowd = [Rival(at_once) for _ in range(8)]
    for rival in crowd:
        rival.start()
    answers = [rival.join() for rival in crowd]

    assert [each.error for each in answers] == [None] * 8
    fresh = [
        each.value for each in answers if isinstance(each.value, cases.Proposed) and not each.value.replayed
    ]
    assert len(fresh) == 1
    assert (Case.objects.count(), Proposal.objects.count()) == (1, 1)


def test_of_two_keys_made_at_once_only_one_takes_the_last_place(world: World) -> None:
    agent = Agent.objects.get(pk=world.organisation.agent.pk)  # it has one key already

    won, lost = race(winner=lambda: keys.issue(agent=agent), loser=lambda: keys.issue(agent=agent))

    assert isinstance(won.value, str)
    assert isinstance(lost.error, keys.TooManyKeys)
    assert AgentKey.objects.filter(agent=agent, revoked_at=None).count() == 2


# What undoes an effect.

UNDONE_BY = {
    "action": "ledger_refund",
    "parameters": {"amount_minor": "{amount_minor}", "currency": "{currency}"},
}


def test_an_agent_that_proposes_the_step_at_that_moment_keeps_no_effect_from_being_undone(
    world: World,
) -> None:
    happened = effect(world)

    def by_the_agent() -> Case:
        parameters = {"amount_minor": 1, "currency": "EUR"}
        return proposed(world, action="ledger_refund", parameters=parameters)

    won, lost = race(winner=by_the_agent, loser=lambda: undo(world, happened))

    assert won.error is None
    assert isinstance(lost.value, cases.Proposed), lost.error
    assert (lost.value.case.compensates_id, lost.value.case.step) == (happened.order_id, 2)


def test_two_operators_who_undo_an_effect_at_once_open_one_case(world: World) -> None:
    happened = effect(world)
    won, lost = race(winner=lambda: undo(world, happened), loser=lambda: undo(world, happened))
    assert isinstance(won.value, cases.Proposed)
    assert isinstance(lost.value, cases.Proposed), lost.error
    assert (won.value.case.pk, lost.value.replayed) == (lost.value.case.pk, True)


def effect(world: World) -> Grant:
    """Proven, of a tool that names what undoes it."""
    version_with(world, compensation=UNDONE_BY)
    grant = claimed(world)
    recorded(grant)
    return grant


def undo(world: World, happened: Grant) -> cases.Proposed:
    return compensations.compensate(actor=world.operator, key=happened.key, rationale="")
