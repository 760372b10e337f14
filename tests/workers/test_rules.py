"""The rules of the enforcement classes: what may be sent again, what is asked before, what waits for a person."""

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db.models.functions import Now

from ledger import halts
from ledger.claims import Grant
from ledger.models import Attempt, Finding
from ledger.outcomes import Report
from ledger.states import AttemptOutcome, EnforcementClass, FindingKind
from ledger.tools import current_version
from tests.workers.told import Told, told, tool_of_the_told_sink
from tests.worlds import (
    LEASE,
    WORKER,
    World,
    attempts,
    claimed,
    operation,
    recorded,
    take_over,
    triggers_off,
)
from workers import outcomes
from workers.connectors.answers import Absent, Differs, Found, Receipt, Refused, Uncertain, Undone
from workers.leases import Lease
from workers.performance import perform

__all__ = ["told"]

EARLIER = ("e" * 40, "f" * 40)
NATURAL, NONE = EnforcementClass.NATURAL_REFERENCE, EnforcementClass.NONE


def tool(world: World, enforcement: EnforcementClass) -> None:
    tool_of_the_told_sink(world, "told", enforcement)


def performed(grant: Grant) -> Report:
    now = time.monotonic()
    lease = Lease(order_id=grant.order_id, token=grant.token, ends=now + LEASE, call_ends=now + LEASE)
    return perform(grant, lease, worker=WORKER)


def carried_out(grant: Grant) -> Report:
    """As performed, and recorded."""
    report = performed(grant)
    outcomes.record([report])
    return report


def first(world: World, **changes: Any) -> Grant:
    return replace(claimed(world, action="told"), **changes)


def again(world: World, *, seconds_ago: float = 0.0, **changes: Any) -> Grant:
    """The grant after a send that nobody answered, so long ago."""
    recorded(claimed(world, action="told"), AttemptOutcome.UNCERTAIN)
    with triggers_off():
        Attempt.objects.update(started_at=Now() - timedelta(seconds=seconds_ago))
    (grant,) = take_over(worker=WORKER)
    return replace(grant, **changes)


# A reference of the sink's own.


def test_a_reference_is_read_back_before_it_is_first_sent(world: World, told: Told) -> None:
    tool(world, NATURAL)
    grant = first(world)
    assert carried_out(grant).state == "committed"
    assert (told.looked_up, told.sent) == ([grant.key], [grant.key])


@pytest.mark.parametrize(
    "found", [Receipt("pay_1", "entered"), Differs(Receipt("pay_1", "entered", key="k"), "another amount")]
)
def test_a_reference_that_somebody_else_has_used_ends_it(world: World, told: Told, found: Found) -> None:
    tool(world, NATURAL)
    told.found = found
    report = carried_out(first(world))
    assert (report.state, report.reason, told.sent) == ("failed_before_commit", "already_at_sink", [])
    assert "pay_1" in str(report.note)


def test_our_own_key_on_the_reference_is_our_effect(world: World, told: Told) -> None:
    tool(world, NATURAL)
    grant = first(world)
    told.found = Receipt("pay_1", "entered", key=grant.key)
    assert carried_out(grant).state == "committed"
    assert told.sent == []


def test_a_sink_that_cannot_be_asked_for_the_reference_is_sent_nothing(world: World, told: Told) -> None:
    tool(world, NATURAL)
    told.found = Uncertain("503")
    report = carried_out(first(world))
    assert (report.outcome, report.state, told.sent) == ("not_sent", "started", [])


def test_a_sent_reference_that_is_not_shown_yet_is_looked_for_after_the_settle_time(
    world: World, told: Told
) -> None:
    tool(world, NATURAL)
    report = carried_out(again(world, seconds_ago=20))
    assert (report.state, told.sent) == ("outcome_unknown", [])
    assert "settle" in str(report.note)
    assert report.wait is not None
    assert 35 < report.wait <= 40  # of the settle time's 60 seconds


def test_a_sent_reference_that_never_shows_is_a_persons_and_is_not_sent_again(
    world: World, told: Told
) -> None:
    tool(world, NATURAL)
    report = carried_out(again(world, seconds_ago=3600))
    assert (report.state, told.sent) == ("outcome_unknown", [])
    assert "a person decides" in str(report.note)


def test_a_sent_reference_that_is_found_is_the_effect(world: World, told: Told) -> None:
    tool(world, NATURAL)
    told.found = Receipt("pay_1", "entered")
    grant = again(world)
    assert carried_out(grant).state == "committed"
    assert operation(grant).reference == "pay_1"


@pytest.mark.parametrize(
    ("enforcement", "found", "kind"),
    [
        (NATURAL, Differs(Receipt("pay_1", "entered"), "another amount"), FindingKind.DIFFERS),
        (
            EnforcementClass.PROVIDER_KEY,
            Differs(Receipt("re_1", "succeeded"), "another amount"),
            FindingKind.DIFFERS,
        ),
        (EnforcementClass.PROVIDER_KEY, Undone(Receipt("re_1", "failed"), "it failed"), FindingKind.REVERSED),
    ],
)
def test_an_effect_that_is_not_as_ordered_is_a_finding_and_stays_unknown(
    world: World, told: Told, enforcement: EnforcementClass, found: Found, kind: FindingKind
) -> None:
    tool(world, enforcement)
    told.found = found
    grant = again(world)
    assert carried_out(grant).state == "outcome_unknown"
    assert told.sent == []
    (finding,) = Finding.objects.all()
    assert (finding.kind, finding.operation_id) == (kind, grant.order_id)


# A sink that promises nothing.


def test_what_nobody_can_ask_for_is_sent_once(world: World, told: Told) -> None:
    tool(world, NONE)
    grant = first(world)
    assert carried_out(grant).state == "committed"
    assert (told.looked_up, told.sent) == ([], [grant.key])


def test_what_nobody_can_ask_for_is_never_sent_again_and_touches_no_wire(world: World, told: Told) -> None:
    tool(world, NONE)
    report = carried_out(again(world))
    assert (report.state, report.sent, report.wait) == (
        "outcome_unknown",
        False,
        settings.EXECUTION.backoff_most,
    )
    assert (told.looked_up, told.sent) == ([], [])


# Older operations of the same action.


@pytest.mark.parametrize("enforcement", [EnforcementClass.PROVIDER_KEY, EnforcementClass.OWNED_WRITE])
def test_older_keys_are_looked_up_before_a_later_one_is_sent(
    world: World, told: Told, enforcement: EnforcementClass
) -> None:
    tool(world, enforcement)
    grant = first(world, earlier_keys=EARLIER)
    assert performed(grant).state == "committed"
    assert (told.looked_up, told.sent) == ([*EARLIER], [grant.key])


@pytest.mark.parametrize(
    "found", [Receipt("re_0", "succeeded"), Differs(Receipt("re_0", "succeeded"), "another amount")]
)
def test_an_effect_under_an_older_key_ends_the_later_one(world: World, told: Told, found: Found) -> None:
    tool(world, EnforcementClass.PROVIDER_KEY)
    told.found = found
    report = performed(first(world, earlier_keys=EARLIER))
    assert (report.state, report.reason, told.sent) == ("failed_before_commit", "earlier_effect", [])
    assert report.earlier is not None
    assert report.earlier[:2] == (EARLIER[0], "re_0")
    assert report.reference is None


def test_an_older_effect_that_was_undone_stands_in_no_way(world: World, told: Told) -> None:
    tool(world, EnforcementClass.PROVIDER_KEY)
    told.found = Undone(Receipt("re_0", "failed"), "it failed")
    assert performed(first(world, earlier_keys=EARLIER)).state == "committed"


def test_a_sink_that_cannot_be_asked_for_an_older_key_is_sent_nothing(world: World, told: Told) -> None:
    tool(world, EnforcementClass.PROVIDER_KEY)
    told.found = Uncertain("503")
    report = performed(first(world, earlier_keys=EARLIER))
    assert (report.outcome, report.state, told.sent) == ("not_sent", "started", [])


def test_an_older_effect_that_shows_after_a_send_of_our_own_is_a_persons(world: World, told: Told) -> None:
    tool(world, EnforcementClass.PROVIDER_KEY)
    grant = again(world, earlier_keys=EARLIER)

    class Older(Told):
        def look_up(self, grant: Grant, *, timeout: float) -> Found:
            return Receipt("re_0", "succeeded") if grant.key in EARLIER else Absent()

    told.look_up = Older().look_up  # type: ignore[method-assign]
    report = performed(grant)
    assert (report.state, report.reason, told.sent) == ("outcome_unknown", "earlier_effect", [])


@pytest.mark.parametrize("marker", [None, EARLIER[1]])
def test_a_reference_that_an_older_operation_must_have_used_is_its_effect(
    world: World, told: Told, marker: str | None
) -> None:
    tool(world, NATURAL)
    told.found = Receipt("pay_1", "entered", key=marker)
    report = performed(first(world, earlier_keys=EARLIER))
    assert (report.state, report.reason) == ("failed_before_commit", "earlier_effect")
    assert report.earlier is not None
    assert report.earlier[0] == EARLIER[1]


# Halts.


def test_a_halt_that_came_after_the_claim_stops_a_repeat(world: World, told: Told) -> None:
    tool(world, EnforcementClass.PROVIDER_KEY)
    grant = again(world)
    halts.begin(tenant_id=world.tenant.pk, tool_id=None, by="person:Olga Demo", reason="Something is odd.")
    report = carried_out(grant)
    assert (report.outcome, report.state, told.sent) == ("not_sent", "outcome_unknown", [])
    assert told.looked_up == [grant.key]  # look-ups go on
    assert "Something is odd." in str(attempts(grant)[-1].note)


def test_the_pause_of_another_tool_stops_nothing(world: World, told: Told) -> None:
    tool(world, EnforcementClass.PROVIDER_KEY)
    grant = again(world)
    other = current_version(tenant_id=world.tenant.pk, name="refund").tool_id
    halts.begin(tenant_id=world.tenant.pk, tool_id=other, by="breaker", reason="It is busy.")
    assert carried_out(grant).state == "committed"


def test_a_refusal_on_a_repeat_may_be_our_own_echo(world: World, told: Told) -> None:
    tool(world, EnforcementClass.PROVIDER_KEY)
    told.answer = Refused("already_refunded", "400")
    assert carried_out(again(world)).state == "outcome_unknown"


@pytest.mark.parametrize(("lapsed", "state"), [(True, "failed_before_commit"), (False, "outcome_unknown")])
def test_behind_a_raised_fence_what_is_absent_and_no_longer_approved_can_never_happen(
    world: World, told: Told, lapsed: bool, state: str
) -> None:
    tool(world, EnforcementClass.OWNED_WRITE)
    told.found = Absent()
    report = carried_out(replace(again(world), may_send=False, lapsed=lapsed))
    assert (report.state, told.sent) == (state, [])  # a halt or a finding only keeps it back
