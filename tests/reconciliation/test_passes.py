"""Ledger against the sink's listing, both ways: what each disagreement becomes, and how it goes away again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from approvals.models import Case
from config.demo import seed
from ledger import findings, tool_versions
from ledger.claims import Grant
from ledger.models import Finding, Reconciliation, Tool, ToolVersion
from ledger.states import AttemptOutcome, ControlEventKind, FindingKind, OperationState
from tests.reconciliation.listings import Listed
from tests.worlds import (
    World,
    approve,
    approved,
    claim,
    claimed,
    events,
    new_world,
    operation,
    recorded,
    revised,
    the_machines_agree,
    triggers_off,
)
from workers.connectors.answers import SinkAway
from workers.reconciliation import NotListed, pass_over, reconcile

__all__ = ["the_machines_agree"]

QUICK: dict[str, Any] = {**seed.REFUND, "settle_time": timedelta(0)}


@pytest.fixture
def version(world: World) -> ToolVersion:
    """The refund tool at a sink whose listing is never behind."""
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    return ToolVersion.objects.create(tool=tool, number=2, **QUICK)


@pytest.fixture
def sink() -> Listed:
    return Listed()


def passed(version: ToolVersion, sink: Listed, **options: Any) -> Reconciliation:
    """A pass over everything."""
    row = pass_over(version=version, sink=sink, since=version.created_at - timedelta(days=1), **options)
    assert row is not None
    return row


def open_ones(*kinds: FindingKind) -> list[tuple[str, str]]:
    """(kind, about) of what is open."""
    found = Finding.objects.filter(closed_at=None, kind__in=kinds or FindingKind)
    return sorted(found.values_list("kind", "about"))


def executed(world: World, reference: str = "1842") -> Grant:
    grant = claimed(world, reference, target=f"order:{reference}")
    recorded(grant)
    return grant


def test_nothing_is_found_where_ledger_and_sink_agree(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    for reference in "abcde":
        sink.add(executed(world, reference))

    row = passed(version, sink)

    assert (row.effects, row.operations, row.opened, open_ones()) == (5, 5, 0, [])
    assert sink.pages == 3
    assert row.ended_at is not None
    assert row.sightings.count() == 0


def test_a_committed_operation_that_the_sink_does_not_list_is_missing_after_the_whole_pass(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    here, gone = executed(world, "here"), executed(world, "gone")
    sink.add(here)

    row = passed(version, sink)

    finding = Finding.objects.get()
    assert (finding.kind, finding.about, finding.operation_id) == ("missing", gone.key, gone.order_id)
    assert (finding.amount_minor, finding.currency, finding.tool_id) == (125_000, "EUR", version.tool_id)
    assert findings.disputed([gone.subject, here.subject]) == {gone.subject}
    assert row.opened == 1


def test_nothing_is_missing_until_the_listing_was_read_to_its_end(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    for reference in "abcd":
        executed(world, reference)
    sink.add()
    sink.away_at_page = 0
    with pytest.raises(SinkAway):
        passed(version, sink)

    assert open_ones() == []
    assert Reconciliation.objects.get().error == "503 Service Unavailable"


def test_what_was_missing_closes_by_itself_when_the_sink_lists_it(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    grant = executed(world)
    passed(version, sink)
    sink.add(grant, happened_at=operation(grant).settled_at)

    row = passed(version, sink)

    finding = Finding.objects.get()
    assert (row.closed, finding.closed_by) == (1, "reconciliation")
    assert finding.closed_because is not None
    assert "agree again" in finding.closed_because


def test_the_same_disagreement_is_one_finding_seen_again(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    executed(world)
    passed(version, sink)
    first = Finding.objects.get().seen_at

    row = passed(version, sink)

    assert Finding.objects.get().seen_at > first
    assert (row.opened, row.closed) == (0, 0)


def test_what_a_person_has_closed_is_not_found_again(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    executed(world)
    passed(version, sink)
    Finding.objects.update(
        closed_at=datetime.now(UTC), closed_by="person:Olga Demo", closed_because="Booked by hand."
    )

    assert passed(version, sink).opened == 0
    assert open_ones() == []


def test_an_effect_with_a_key_that_nobody_knows_is_an_alarm(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    sink.add(key="f" * 40, reference="re_ghost")
    sink.add(key="not a key of ours \x00", reference="re_odd")

    passed(version, sink)

    assert [kind for kind, _ in open_ones()] == ["unrecorded", "unrecorded"]
    assert ("unrecorded", f"{'f' * 40}:re_ghost") in open_ones()


def test_an_effect_of_an_unresolved_operation_makes_it_due_for_a_look_up(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    grant = claimed(world)
    unknown = recorded(grant, AttemptOutcome.UNCERTAIN, wait=3600.0)
    assert unknown.due_at is not None
    sink.add(grant)

    passed(version, sink)

    due = operation(grant)
    assert due.state == OperationState.OUTCOME_UNKNOWN
    assert due.due_at is not None
    assert due.due_at < unknown.due_at
    assert open_ones() == []


def test_effects_that_were_never_ours_are_one_finding_a_day_and_can_be_muted(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    noon = datetime.now(UTC).replace(hour=12, minute=0) - timedelta(days=2)
    for day in range(2):
        for minute in range(3):
            sink.add(happened_at=noon + timedelta(days=day, minutes=minute))
    row = pass_over(version=version, sink=sink, since=noon - timedelta(days=1))
    assert row is not None

    found = list(Finding.objects.order_by("about"))
    assert [(each.kind, each.about, each.detail["count"]) for each in found] == [
        ("foreign", f"{version.tool_id}:{(noon + timedelta(days=day)).date()}", 3) for day in range(2)
    ]
    assert row.opened == 2

    Finding.objects.filter(pk=found[0].pk).update(muted_at=datetime.now(UTC))
    sink.add(happened_at=noon + timedelta(hours=1))
    again = pass_over(version=version, sink=sink, since=noon - timedelta(days=1))
    assert again is not None
    muted = Finding.objects.get(pk=found[0].pk)
    assert (again.opened, muted.detail["count"], muted.closed_at) == (0, 4, None)
    assert muted.muted_at is not None


def test_a_second_effect_under_one_key_is_found_until_it_is_undone(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    grant = executed(world)
    sink.add(grant)
    second = sink.add(grant, reference="re_second")

    passed(version, sink)
    assert open_ones() == [("twice", f"{grant.key}:re_second")]

    sink.change(second, reversed=True, status="canceled")
    passed(version, sink)
    assert open_ones() == []


def test_a_second_effect_is_settled_by_as_many_compensations(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    grant = executed(world)
    sink.add(grant)
    for name in ("re_second", "re_third"):
        sink.add(grant, reference=name)
    passed(version, sink)
    for number, left in ((1, 2), (2, 0)):
        undo = executed(world, f"undo-{number}")
        sink.add(undo)
        by_hand(f"UPDATE ledger_order SET compensates_id = {grant.order_id} WHERE id = {undo.order_id}")
        passed(version, sink)
        assert len(open_ones()) == left


def test_an_effect_under_an_older_key_of_an_action_that_has_one_already_is_twice(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    first = claimed(world)
    recorded(first, AttemptOutcome.REFUSED)
    again = proposed_again(world, first)
    sink.add(first, reference="re_first")
    sink.add(again)

    passed(version, sink)

    assert open_ones() == [("twice", f"{first.key}:re_first")]
    assert Finding.objects.get().subject == first.subject


@pytest.mark.parametrize(
    "changes", [{"amount_minor": 125_001}, {"currency": "USD"}, {"currency": "usd", "amount_minor": 1}]
)
def test_an_effect_of_another_amount_differs_and_closes_when_it_does_not(
    world: World, version: ToolVersion, sink: Listed, changes: dict[str, Any]
) -> None:
    grant = executed(world)
    effect = sink.add(grant, **changes)
    passed(version, sink)
    finding = Finding.objects.get()
    assert finding.kind == "differs"
    assert finding.detail["ordered"] == {"amount_minor": 125_000, "currency": "EUR"}

    sink.change(effect, currency="eur", amount_minor=125_000)
    passed(version, sink)
    assert open_ones() == []


def test_an_effect_that_later_failed_is_reversed(world: World, version: ToolVersion, sink: Listed) -> None:
    effect = sink.add(executed(world))
    passed(version, sink)
    assert open_ones() == []

    sink.change(effect, reversed=True, status="failed")
    passed(version, sink)
    assert [kind for kind, _ in open_ones()] == ["reversed"]


def test_a_failed_operation_whose_effect_was_undone_agrees(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.REFUSED)
    sink.add(grant, reversed=True, status="failed")

    passed(version, sink)

    assert open_ones() == []


def test_a_failed_operation_whose_effect_stands_is_corrected_and_said(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.REFUSED)
    sink.add(grant)

    passed(version, sink)

    corrected = operation(grant)
    assert (corrected.state, corrected.reference) == (OperationState.COMMITTED, f"re_{grant.key[:12]}")
    assert Case.objects.get(pk=grant.subject).state == "executed"
    assert len(events(ControlEventKind.CORRECTION)) == 1
    assert [kind for kind, _ in open_ones()] == ["late"]

    passed(version, sink)
    assert len(events(ControlEventKind.CORRECTION)) == 1


def test_an_operation_that_was_not_even_started_is_corrected_too(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    case = approved(world)
    sink.add(key=operation(case).order.key, reference="re_from_before_the_restore")

    passed(version, sink)

    assert operation(case).state == OperationState.COMMITTED
    assert Case.objects.get(pk=case.pk).state == "executed"
    assert claim() == []


def test_a_failed_operation_with_another_amount_is_not_corrected(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.REFUSED)
    sink.add(grant, amount_minor=1)

    passed(version, sink)

    assert [kind for kind, _ in open_ones()] == ["differs"]
    assert operation(grant).state == OperationState.FAILED_BEFORE_COMMIT


def test_tools_and_tenants_that_share_a_sink_leave_each_others_effects_alone(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    other = new_world()
    theirs = executed(other, "theirs")
    seed.tool(world.tenant, "refund_high", QUICK)
    grant = claimed(world, "high", action="refund_high")
    recorded(grant)
    sink.add(theirs)
    sink.add(grant)
    sink.add(grant, key=None, reference=operation(grant).reference)

    passed(version, sink)

    assert open_ones() == []


def test_no_effect_is_judged_that_its_sink_may_not_list_yet(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    slow = ToolVersion.objects.create(
        tool=version.tool, number=3, **{**QUICK, "settle_time": timedelta(hours=1)}
    )
    executed(world)

    row = passed(slow, sink)

    assert open_ones() == []
    assert row.until < datetime.now(UTC) - timedelta(minutes=59)


def test_a_pass_begins_before_the_last_one_ended_and_once_a_day_looks_through_everything(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    by_hand("UPDATE ledger_toolversion SET created_at = created_at - interval '90 days'")
    first, second = pass_over(version=version, sink=sink), pass_over(version=version, sink=sink)
    assert first is not None
    assert second is not None
    assert first.since < first.until - timedelta(days=29)  # the tool's retry horizon
    assert first.until - timedelta(minutes=2) < second.since < first.until

    by_hand("UPDATE ledger_reconciliation SET began_at = began_at - interval '2 days'")
    third = pass_over(version=version, sink=sink)
    assert third is not None
    assert third.since < third.until - timedelta(days=29)


def by_hand(statement: str) -> None:
    with triggers_off(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_a_pass_that_is_cut_short_goes_on_where_it_was(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    for reference in "abcdef":
        sink.add(executed(world, reference))
    sink.away_at_page = 2
    with pytest.raises(SinkAway):
        passed(version, sink)
    sink.away_at_page = None

    row = pass_over(version=version, sink=sink)

    assert row is not None
    assert (row.effects, row.operations, sink.pages) == (6, 6, 3)
    assert open_ones() == []
    assert Reconciliation.objects.count() == 1


def test_rows_that_come_while_the_listing_is_read_hide_nothing(
    world: World, version: ToolVersion, sink: Listed
) -> None:
    grants = [executed(world, reference) for reference in "abcd"]
    for grant in grants:
        sink.add(grant)
    early = sink.effects[0].happened_at - timedelta(seconds=1)
    reading = sink.list_effects

    def with_a_newcomer(*arguments: Any, **options: Any) -> Any:
        sink.add(happened_at=early, reference=f"re_{sink.pages}")
        return reading(*arguments, **options)

    sink.list_effects = with_a_newcomer  # type: ignore[method-assign]
    passed(version, sink)

    assert open_ones(FindingKind.MISSING) == []


def test_a_listing_that_leads_in_a_circle_ends(world: World, version: ToolVersion, sink: Listed) -> None:
    class Circle(Listed):
        def list_effects(self, *arguments: Any, **options: Any) -> Any:
            page = super().list_effects(*arguments, **{**options, "cursor": None})
            return type(page)(page.effects, "always the same")

    with pytest.raises(SinkAway, match="circle"):
        passed(version, Circle())


def test_a_tool_whose_sink_cannot_list_says_so(world: World) -> None:
    letter = Tool.objects.create(tenant=world.tenant, name="letter")
    tool_versions.publish(tool=letter, fields={**QUICK, "connector": "none such"})
    with pytest.raises(NotListed):
        reconcile(tool=letter)


def proposed_again(world: World, failed: Grant) -> Grant:
    """The case of the failed operation, proposed, approved and executed once more."""
    case = revised(world, Case.objects.get(pk=failed.subject), rationale="Once more.")
    approve(case, world.reviewer)
    grant = next(each for each in claim() if each.subject == case.pk)
    recorded(grant)
    return grant
