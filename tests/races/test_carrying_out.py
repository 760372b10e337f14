"""Claims, take-overs, recordings and people at once: each operation has one grant in force, whoever came first."""

from approvals import cases
from approvals.errors import VersionConflict
from approvals.models import Case
from approvals.states import Verdict
from ledger import claims as ledger_claims
from ledger import inbound
from ledger.models import Attempt, Evidence, Operation
from ledger.states import AttemptOutcome, ControlEventKind
from tests.races.rivals import Came, passes_by, race
from tests.worlds import (
    LAPSED,
    World,
    approved,
    attempts,
    case_of,
    claim,
    claimed,
    current,
    events,
    make_due,
    make_late,
    open_finding,
    operation,
    proposed,
    recorded,
    report,
    say,
    tag,
    take_over,
)
from workers import outcomes


def revoke(world: World, case: Case) -> object:
    return say(Verdict.REVOKE, case, world.reviewer, seen=tag(case))


def withdraw(world: World, case: Case) -> object:
    return cases.withdraw(actor=world.agent, case_id=case.pk, seen=tag(case))


# Claim and people.


def test_what_is_claimed_first_is_not_revoked(world: World) -> None:
    case = approved(world)
    seen = tag(case)

    won, lost = race(winner=claim, loser=lambda: say(Verdict.REVOKE, case, world.reviewer, seen=seen))

    assert won.error is None
    assert isinstance(lost.error, VersionConflict)
    assert (current(case).state, operation(case).state) == ("executing", "started")


def test_what_is_claimed_first_is_not_withdrawn(world: World) -> None:
    case = approved(world)
    seen = tag(case)

    won, lost = race(
        winner=claim, loser=lambda: cases.withdraw(actor=world.agent, case_id=case.pk, seen=seen)
    )

    assert won.error is None
    assert isinstance(lost.error, VersionConflict)
    assert (current(case).state, operation(case).state) == ("executing", "started")


def test_the_claim_passes_by_what_is_being_revoked_and_never_gets_it(world: World) -> None:
    case = approved(world)
    held, passed = passes_by(holder=lambda: revoke(world, case), passer=claim)
    assert held.error is None
    assert passed == Came(value=[])
    make_due()
    assert claim() == []
    assert (current(case).state, operation(case).reason) == ("pending", "revoked")


def test_the_claim_passes_by_what_is_being_withdrawn_and_never_gets_it(world: World) -> None:
    case = approved(world)
    held, passed = passes_by(holder=lambda: withdraw(world, case), passer=claim)
    assert held.error is None
    assert passed == Came(value=[])
    make_due()
    assert claim() == []
    assert (current(case).state, operation(case).reason) == ("withdrawn", "withdrawn")


def test_the_claim_passes_by_a_case_somebody_only_looks_hard_at(world: World) -> None:
    # A decision holds the case's row before it has touched the operation.
    case, other = approved(world), approved(world, "1843", target="order:2")
    held, passed = passes_by(holder=lambda: cases.locked(actor=world.reviewer, case_id=case.pk), passer=claim)
    assert held.error is None
    assert [grant.subject for grant in grants(passed)] == [other.pk]
    make_due()
    assert [grant.subject for grant in claim()] == [case.pk]


def test_the_claim_does_not_see_an_approval_that_has_not_committed(world: World) -> None:
    case = proposed(world)
    held, passed = passes_by(
        holder=lambda: say(Verdict.APPROVE, case, world.reviewer, seen=tag(case)), passer=claim
    )
    assert held.error is None
    assert passed == Came(value=[])
    assert [grant.subject for grant in claim()] == [case.pk]


def test_the_claim_does_not_wait_for_an_approval_that_queues_behind_the_same_resource(world: World) -> None:
    # The approval's foreign key looks at the resource's row only as it commits, and the claim changes that row.
    first, second = approved(world), proposed(world, "1843")
    held, passed = passes_by(
        holder=lambda: say(Verdict.APPROVE, second, world.reviewer, seen=tag(second)), passer=claim
    )
    assert held.error is None
    assert [grant.subject for grant in grants(passed)] == [first.pk]


def test_a_recording_does_not_wait_for_an_approval_that_queues_behind_the_same_resource(world: World) -> None:
    grant, second = claimed(world), proposed(world, "1843")
    held, passed = passes_by(
        holder=lambda: say(Verdict.APPROVE, second, world.reviewer, seen=tag(second)),
        passer=lambda: outcomes.record([report(grant)]),
    )
    assert (held.error, passed.error) == (None, None)
    assert operation(grant).state == "committed"


def test_the_claim_passes_by_a_case_about_which_a_finding_is_being_opened(world: World) -> None:
    case = approved(world)

    def dispute() -> None:
        cases.locked(actor=world.reviewer, case_id=case.pk)
        open_finding(world, case)

    held, passed = passes_by(holder=dispute, passer=claim)
    assert held.error is None
    assert passed == Came(value=[])
    make_due()
    assert claim() == []
    assert current(case).state == "approved"


# Claim and claim.


def test_two_claims_on_one_resource_give_one_grant(world: World) -> None:
    approved(world)
    approved(world, "1843")

    first, second = passes_by(
        holder=lambda: claim(worker="worker-a"), passer=lambda: claim(worker="worker-b")
    )

    assert (len(grants(first)), second) == (1, Came(value=[]))
    assert claim(worker="worker-b") == []
    assert Attempt.objects.count() == 1


def test_two_claims_on_different_resources_go_side_by_side(world: World) -> None:
    approved(world)
    approved(world, "1843", target="order:2")

    first, second = passes_by(
        holder=lambda: claim(worker="worker-a", most=1), passer=lambda: claim(worker="worker-b", most=2)
    )

    assert len(grants(first)) == len(grants(second)) == 1
    assert {each.subject for each in [*grants(first), *grants(second)]} == set(
        Case.objects.values_list("pk", flat=True)
    )


def test_two_take_overs_of_one_operation_give_one_grant(world: World) -> None:
    claimed(world, lease=LAPSED)
    first, second = passes_by(
        holder=lambda: take_over(worker="worker-b"), passer=lambda: take_over(worker="worker-c")
    )
    assert (len(grants(first)), second) == (1, Came(value=[]))
    assert Attempt.objects.filter(ended_at=None).count() == 1


# Recording and take-over.


def test_what_is_being_recorded_is_not_taken_over(world: World) -> None:
    grant = claimed(world, lease=LAPSED)

    held, passed = passes_by(
        holder=lambda: outcomes.record([report(grant)]), passer=lambda: take_over(worker="worker-b")
    )

    assert held.error is None
    assert passed == Came(value=[])
    assert take_over(worker="worker-b") == []
    assert operation(grant).state == "committed"
    assert [each.outcome for each in attempts(grant)] == ["committed"]


def test_what_is_taken_over_first_is_recorded_as_evidence(world: World) -> None:
    grant = claimed(world, lease=LAPSED)

    won, lost = race(
        winner=lambda: take_over(worker="worker-b"), loser=lambda: outcomes.record([report(grant)])
    )

    assert len(grants(won)) == 1
    assert lost.error is None
    assert operation(grant).state == "started"
    assert operation(grant).worker == "worker-b"
    assert [kept.token for kept in Evidence.objects.all()] == [grant.token]
    assert len(events(ControlEventKind.FENCED_WRITE)) == 1


def test_what_is_taken_over_first_is_renewed_no_more(world: World) -> None:
    grant = claimed(world, lease=LAPSED)
    pair = (grant.order_id, grant.token)

    held, passed = passes_by(
        holder=lambda: take_over(worker="worker-b"),
        passer=lambda: ledger_claims.renew([pair], worker="worker-a", lease=60.0),
    )

    assert held.error is None
    assert passed == Came(value=set())


def test_what_is_renewed_first_is_not_taken_over(world: World) -> None:
    grant = claimed(world, lease=LAPSED)
    pair = (grant.order_id, grant.token)
    held, passed = passes_by(
        holder=lambda: ledger_claims.renew([pair], worker="worker-a", lease=60.0),
        passer=lambda: take_over(worker="worker-b"),
    )
    assert held == Came(value={pair})
    assert passed == Came(value=[])
    assert take_over(worker="worker-b") == []


def test_a_recording_sent_twice_at_once_is_recorded_once(world: World) -> None:
    said = report(claimed(world))
    won, lost = race(winner=lambda: outcomes.record([said]), loser=lambda: outcomes.record([said]))
    assert (won.error, lost.error) == (None, None)
    assert world.resource().version == 1
    assert not Evidence.objects.exists()
    assert not events()


def test_the_next_of_a_resource_is_claimed_only_once_the_first_is_recorded(world: World) -> None:
    grant = claimed(world)
    next_ = approved(world, "1843")

    held, passed = passes_by(holder=lambda: outcomes.record([report(grant)]), passer=claim)

    assert held.error is None
    assert passed == Came(value=[])
    assert [each.subject for each in claim()] == [next_.pk]


def test_a_recording_waits_for_whoever_looks_hard_at_the_case(world: World) -> None:
    grant = claimed(world)
    won, lost = race(
        winner=lambda: cases.locked(actor=world.reviewer, case_id=grant.subject),
        loser=lambda: outcomes.record([report(grant)]),
    )
    assert (won.error, lost.error) == (None, None)
    assert case_of(grant).state == "executed"


def test_what_ends_at_a_later_grant_waits_for_nobody(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.NOT_SENT)
    make_late(case_of(grant))

    held, passed = passes_by(
        holder=lambda: cases.locked(actor=world.reviewer, case_id=grant.subject), passer=take_over
    )
    assert held.error is None
    assert passed == Came(value=[])
    assert operation(grant).state == "started"
    assert take_over() == []
    assert operation(grant).reason == "never_sent"
    assert Operation.objects.count() == 1


def grants(came: Came) -> list[ledger_claims.Grant]:
    assert isinstance(came.value, list), came.error
    return came.value


def test_an_event_that_comes_while_an_unknown_outcome_is_being_recorded_brings_the_look_up_forward(
    world: World,
) -> None:
    grant = claimed(world)
    tool = Operation.objects.get(pk=grant.order_id).tool
    event = inbound.store(tool=tool, event_id="evt_1", kind="refund.updated", body="{}")

    said = report(grant, AttemptOutcome.UNCERTAIN, wait=3600.0)
    won, lost = race(
        winner=lambda: outcomes.record([said]),
        loser=lambda: inbound.match(event, keys=[grant.key], names=[]),
    )

    assert (won.error, lost) == (None, Came(value=True))
    assert len(take_over()) == 1


def test_an_unknown_outcome_that_is_recorded_while_an_event_is_being_matched_is_looked_up_at_once(
    world: World,
) -> None:
    grant = claimed(world)
    tool = Operation.objects.get(pk=grant.order_id).tool
    event = inbound.store(tool=tool, event_id="evt_1", kind="refund.updated", body="{}")

    said = report(grant, AttemptOutcome.UNCERTAIN, wait=3600.0)
    won, lost = race(
        winner=lambda: inbound.match(event, keys=[grant.key], names=[]),
        loser=lambda: outcomes.record([said]),
    )

    assert (won, lost.error) == (Came(value=True), None)
    assert len(take_over()) == 1
