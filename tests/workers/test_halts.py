"""A halted organisation, a paused tool: nothing is sent, look-ups go on, deadlines are longer by that time."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now

from approvals import cases, deadlines
from approvals.models import Case, Proposal
from approvals.states import Verdict
from ledger import clock, halts
from ledger.models import Halt, Tool
from ledger.states import AttemptOutcome
from tests.worlds import (
    LAPSED,
    World,
    approved,
    claim,
    claimed,
    current,
    events,
    make_due,
    make_late,
    new_world,
    operation,
    proposed,
    recorded,
    say,
    take_over,
    triggers_off,
)


def halt(world: World, tool: str | None = None) -> Halt:
    tool_id = Tool.objects.get(tenant=world.tenant, name=tool).pk if tool else None
    return halts.begin(
        tenant_id=world.tenant.pk, tool_id=tool_id, by="person:Demo", reason="Something is odd."
    )


def release(world: World, tool: str | None = None) -> bool:
    tool_id = Tool.objects.get(tenant=world.tenant, name=tool).pk if tool else None
    return halts.end(tenant_id=world.tenant.pk, tool_id=tool_id, by="person:Demo")


def test_nothing_of_a_halted_organisation_is_claimed_and_all_of_it_once_it_goes_on(world: World) -> None:
    case = approved(world)
    halt(world)
    assert claim() == []
    assert (operation(case).state, current(case).state) == ("not_started", "approved")
    make_due()
    assert claim() == []  # looked at again, and put off again

    release(world)
    make_due()
    assert [grant.subject for grant in claim()] == [case.pk]
    assert events() == []  # waiting is no refusal


def test_a_halt_does_not_reach_another_organisation(world: World) -> None:
    other = new_world()
    halt(world)
    approved(world)
    theirs = approved(other)
    assert [grant.subject for grant in claim()] == [theirs.pk]


def test_a_paused_tool_stands_still_and_the_others_go_on(world: World) -> None:
    halt(world, "refund")
    approved(world)
    other = approved(
        world,
        "1843",
        action="ledger_refund",
        target="order:2",
        parameters={"amount_minor": 5, "currency": "EUR"},
    )
    assert [grant.subject for grant in claim()] == [other.pk]


def test_what_was_never_sent_waits_for_the_halt_to_end(world: World) -> None:
    grant = claimed(world, lease=LAPSED)
    recorded(grant, AttemptOutcome.NOT_SENT)
    halt(world)
    assert take_over() == []
    release(world)
    make_due()
    (again,) = take_over()
    assert again.may_send


def test_what_may_have_been_sent_is_looked_up_under_a_halt_and_not_sent_again(world: World) -> None:
    recorded(claimed(world), AttemptOutcome.UNCERTAIN)
    halt(world)
    (grant,) = take_over()
    assert (grant.maybe_sent, grant.may_send) == (True, False)


def test_a_halt_that_there_is_already_stays_as_it_is(world: World) -> None:
    first = halt(world)
    assert halt(world) == first
    assert release(world)
    assert not release(world)
    assert halt(world) != first


def test_a_halt_that_knows_its_end_ends_by_itself(world: World) -> None:
    case = approved(world)
    halts.begin(
        tenant_id=world.tenant.pk,
        tool_id=None,
        by="breaker",
        reason="Busy.",
        ends_in=timedelta(microseconds=1),
    )
    assert [grant.subject for grant in claim()] == [case.pk]


@pytest.mark.parametrize("tool", [None, "refund"])
def test_a_deadline_is_later_by_the_time_its_tool_stood_still(world: World, tool: str | None) -> None:
    case = overdue(world)
    assert deadlines.passed(case)
    stood_still(world, tool, timedelta(minutes=1))

    assert not deadlines.passed(case)
    assert cases.expire_due() == 0
    say(Verdict.APPROVE, case, world.reviewer)
    assert [grant.subject for grant in claim()] == [case.pk]


def test_late_cases_are_found_behind_many_whose_organisation_stood_still(world: World) -> None:
    standing_still = [overdue(world, str(number)) for number in range(4)]
    stood_still(world, None, timedelta(minutes=1))
    late = overdue(new_world())
    assert cases.expire_due(most=2) == 1
    assert [current(case).state for case in [*standing_still, late]] == [*["pending"] * 4, "expired"]


def test_the_standstill_of_another_tool_moves_no_deadline(world: World) -> None:
    case = overdue(world)
    stood_still(world, "ledger_refund", timedelta(minutes=1))
    assert deadlines.passed(case)
    assert cases.expire_due() == 1


def test_times_that_overlap_count_once(world: World) -> None:
    case = proposed(world)
    now = clock.now()
    for tool, minutes in ((None, 10), ("refund", 8), ("refund", 3)):
        stood_still(world, tool, timedelta(minutes=minutes))
    extension = halts.extension(
        tenant_id=world.tenant.pk, tool_id=case.tool_id, since=now - timedelta(minutes=30)
    )
    assert timedelta(minutes=10) <= extension < timedelta(minutes=10, seconds=5)


def overdue(world: World, reference: str = "1842") -> Case:
    """A case that was proposed an hour ago, and whose deadline passed a second ago."""
    case = proposed(world, reference)
    make_late(case)
    with triggers_off():
        Proposal.objects.filter(pk=case.proposal_id).update(created_at=Now() - timedelta(hours=1))
    return current(case)


def stood_still(world: World, tool: str | None, how_long: timedelta) -> None:
    """A halt that has just ended, after so long a time."""
    Halt.objects.create(
        tenant=world.tenant,
        tool=Tool.objects.get(tenant=world.tenant, name=tool) if tool else None,
        reason="Something was odd.",
        began_at=clock.now() - how_long,
        began_by="person:Demo",
        ends_at=clock.now(),
        ended_by="person:Demo",
    )
