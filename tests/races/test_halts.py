"""A halt and a claim at once: whichever was first has its way, and once a halt has committed nothing is claimed."""

from ledger import halts
from ledger.models import Halt
from tests.races.rivals import passes_by, race
from tests.worlds import World, approved, claim, operation


def begin(world: World) -> Halt:
    return halts.begin(tenant_id=world.tenant.pk, tool_id=None, by="person:Demo", reason="Something is odd.")


def test_a_halt_waits_for_the_claims_that_are_open(world: World) -> None:
    case = approved(world)
    won, lost = race(winner=claim, loser=lambda: begin(world))
    assert (won.error, lost.error) == (None, None)
    assert operation(case).state == "started"  # claimed before the halt: its call may finish
    assert Halt.objects.get().began_at > operation(case).attempts.get().started_at


def test_a_claim_passes_by_an_organisation_that_is_being_halted(world: World) -> None:
    case = approved(world)
    held, passed = passes_by(holder=lambda: begin(world), passer=claim)
    assert (held.error, passed.error) == (None, None)
    assert passed.value == []
    assert operation(case).state == "not_started"
