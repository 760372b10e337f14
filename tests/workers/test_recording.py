"""The recording: by the token in force, once; what comes too late is kept, counted, and changes nothing."""

from collections.abc import Sequence
from typing import Any

import pytest
from django.db import transaction

from approvals import cases
from approvals.errors import Disputed
from approvals.models import Case
from approvals.states import Verdict
from ledger import clock
from ledger.claims import Grant
from ledger.models import Attempt, Evidence, Finding, Halt, Operation, Resource
from ledger.outcomes import Report
from ledger.states import AttemptOutcome, ControlEventKind, FindingKind
from tests.worlds import (
    LAPSED,
    World,
    approve,
    approved,
    attempts,
    case_of,
    claim,
    claimed,
    content,
    current,
    events,
    history,
    operation,
    recorded,
    report,
    revised,
    say,
    tag,
    take_over,
)
from workers import outcomes

NOT_FINAL = [
    (AttemptOutcome.NOT_SENT, "started", "executing"),
    (AttemptOutcome.BUSY, "started", "executing"),
    (AttemptOutcome.IN_PROGRESS, "started", "executing"),
    (AttemptOutcome.UNCERTAIN, "outcome_unknown", "unknown"),
]


# By the token in force.


def test_a_receipt_settles_everything_in_one_transaction(world: World) -> None:
    grant = claimed(world)

    it = recorded(grant, reference="re_77", receipt='{"status":"succeeded"}')

    assert (it.state, it.reference, it.reason) == ("committed", "re_77", None)
    assert (it.worker, it.due_at, it.token) == (None, None, grant.token)
    assert it.settled_at is not None
    (attempt,) = attempts(grant)
    assert (attempt.outcome, attempt.sent, attempt.receipt) == ("committed", True, '{"status":"succeeded"}')
    assert attempt.ended_at is not None
    assert (it.resource.version, it.resource.holder_id, it.resource.token) == (1, None, grant.token)
    assert history(case_of(grant))[-2:] == [(3, "executing", "claimed"), (4, "executed", "executed")]


def test_a_refusal_settles_it_as_not_happened_and_moves_no_version(world: World) -> None:
    grant = claimed(world)
    it = recorded(grant, AttemptOutcome.REFUSED, reason="insufficient_funds", note="402: no funds")
    assert (it.state, it.reference, it.reason) == ("failed_before_commit", None, "insufficient_funds")
    assert (it.resource.version, it.resource.holder_id) == (0, None)
    case = case_of(grant)
    assert history(case)[-1] == (4, "failed", "failed")
    assert case.revisions.get(number=4).reason_code == "insufficient_funds"


@pytest.mark.parametrize(("outcome", "state", "case_state"), NOT_FINAL)
def test_what_is_not_final_keeps_its_resource_and_is_due_again(
    world: World, outcome: AttemptOutcome, state: str, case_state: str
) -> None:
    grant = claimed(world)
    before = clock.now()
    it = recorded(grant, outcome, wait=7.0)
    assert (it.state, it.worker, it.settled_at) == (state, None, None)
    assert it.due_at is not None
    assert 7.0 <= (it.due_at - before).total_seconds() < 12.0
    assert (it.resource.holder_id, it.resource.version) == (it.order_id, 0)
    assert attempts(grant)[0].outcome == outcome
    assert case_of(grant).state == case_state


def test_what_leaves_the_case_where_it_is_leaves_its_revision(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.NOT_SENT)
    assert case_of(grant).revision == 3
    (grant,) = take_over(worker="worker-a")
    recorded(grant, AttemptOutcome.UNCERTAIN)
    (grant,) = take_over(worker="worker-a")
    recorded(grant, AttemptOutcome.UNCERTAIN)
    assert history(case_of(grant))[-1] == (4, "unknown", "lost_sight")


@pytest.mark.parametrize(
    ("outcome", "state"), [(AttemptOutcome.COMMITTED, "executed"), (AttemptOutcome.REFUSED, "failed")]
)
def test_an_unknown_is_settled_by_what_is_found(world: World, outcome: AttemptOutcome, state: str) -> None:
    recorded(claimed(world), AttemptOutcome.UNCERTAIN)
    (grant,) = take_over()
    recorded(grant, outcome, worker="worker-b")
    assert [each[1] for each in history(case_of(grant))[2:]] == ["executing", "unknown", state]


def test_the_version_of_a_resource_rises_by_one_with_each_effect(world: World) -> None:
    versions = []
    for number, outcome in enumerate(
        [AttemptOutcome.COMMITTED, AttemptOutcome.REFUSED, AttemptOutcome.COMMITTED]
    ):
        recorded(claimed(world, str(number)), outcome)
        versions.append(world.resource().version)
    assert versions == [1, 1, 2]


def test_look_ups_are_counted_on_the_attempt(world: World) -> None:
    recorded(claimed(world), lookups=3, sent=False)
    assert [(each.lookups, each.sent) for each in Attempt.objects.all()] == [(3, False)]


# By a token that is no longer in force.


def taken_over(world: World) -> tuple[Grant, Grant]:
    """A stalled worker's grant and its successor's."""
    stalled = claimed(world, lease=LAPSED)
    (successor,) = take_over(worker="worker-b")
    return stalled, successor


def everything() -> list[Any]:
    """All rows a recording could change."""
    tables = (Case, Operation, Attempt, Resource)
    return [list(table._default_manager.order_by("pk").values()) for table in tables]


def test_a_stale_worker_cannot_record_an_outcome_for_a_reclaimed_operation(world: World) -> None:
    stalled, _successor = taken_over(world)
    before = everything()

    outcomes.record([report(stalled)])

    assert everything() == before
    (kept,) = Evidence.objects.all()
    assert (kept.operation_id, kept.token, kept.worker) == (stalled.order_id, stalled.token, "worker-a")
    assert (kept.outcome, kept.reference) == ("committed", report(stalled).reference)
    assert kept.receipt == '{"status":"succeeded"}'
    (event,) = events()
    assert (event.kind, event.source, event.action) == ("fenced_write", "worker:worker-a", "refund")
    assert (event.subject, event.key) == (stalled.subject, stalled.key)
    assert event.detail == {"token": stalled.token, "outcome": "committed"}


def test_what_the_successor_recorded_stands(world: World) -> None:
    stalled, successor = taken_over(world)
    recorded(successor, worker="worker-b")
    before = everything()

    outcomes.record([report(stalled)])  # the provider's same receipt, under the same key

    assert everything() == before
    assert operation(stalled).state == "committed"
    assert Evidence.objects.count() == 1
    assert not Finding.objects.exists()  # it says what is settled


@pytest.mark.parametrize("outcome", [each for each in AttemptOutcome if each != AttemptOutcome.SUPERSEDED])
def test_nothing_a_stale_worker_says_settles_anything(world: World, outcome: AttemptOutcome) -> None:
    stalled, _successor = taken_over(world)
    before = everything()
    outcomes.record([report(stalled, outcome)])
    assert everything() == before
    assert [kept.outcome for kept in Evidence.objects.all()] == [outcome]
    assert len(events(ControlEventKind.FENCED_WRITE)) == 1


def test_late_evidence_makes_an_unknown_due_at_once(world: World) -> None:
    stalled, successor = taken_over(world)
    recorded(successor, AttemptOutcome.UNCERTAIN, worker="worker-b", wait=3600.0)
    assert take_over() == []

    outcomes.record([report(stalled)])

    (again,) = take_over()
    assert again.order_id == stalled.order_id
    assert operation(stalled).state == "outcome_unknown"


def test_late_evidence_leaves_a_live_grant_to_its_worker(world: World) -> None:
    stalled, _successor = taken_over(world)
    due_at = operation(stalled).due_at
    outcomes.record([report(stalled)])
    assert operation(stalled).due_at == due_at
    assert take_over() == []


@pytest.mark.parametrize(
    "settled", [AttemptOutcome.REFUSED, AttemptOutcome.COMMITTED], ids=["as absent", "as another effect"]
)
def test_late_evidence_that_disagrees_is_a_finding_and_stops_a_new_approval(
    world: World, settled: AttemptOutcome
) -> None:
    stalled, successor = taken_over(world)
    other = {"reference": "re_other"} if settled == AttemptOutcome.COMMITTED else {}
    recorded(successor, settled, worker="worker-b", **other)
    before = everything()

    outcomes.record([report(stalled, reference="re_77")])

    assert everything() == before
    (finding,) = Finding.objects.all()
    assert (finding.kind, finding.subject) == (FindingKind.LATE, stalled.subject)
    assert (finding.operation_id, finding.closed_at) == (stalled.order_id, None)
    assert (finding.reference, finding.detail["token"]) == ("re_77", stalled.token)
    if settled == AttemptOutcome.REFUSED:
        case = case_of(stalled)
        revised(world, case, rationale="Once more.")
        with pytest.raises(Disputed):
            say(Verdict.APPROVE, case, world.reviewer)


def test_the_same_disagreement_is_one_finding_and_every_word_is_kept(world: World) -> None:
    first = claimed(world, lease=LAPSED)
    (second,) = take_over(worker="worker-b", lease=LAPSED)
    (third,) = take_over(worker="worker-c")
    recorded(third, AttemptOutcome.REFUSED, worker="worker-c")
    outcomes.record([report(first, reference="re_1"), report(second, reference="re_1", worker="worker-b")])
    assert Finding.objects.count() == 1
    assert Evidence.objects.count() == 2
    assert len(events(ControlEventKind.FENCED_WRITE)) == 2


def test_late_evidence_with_the_longest_reference_is_kept_like_any_other(world: World) -> None:
    stalled, successor = taken_over(world)
    recorded(successor, AttemptOutcome.REFUSED, worker="worker-b")
    outcomes.record([report(stalled, reference="r" * 255)])
    assert [kept.reference for kept in Evidence.objects.all()] == ["r" * 255]
    assert Finding.objects.count() == 1


def test_a_token_that_was_never_granted_records_nothing(world: World) -> None:
    grant = claimed(world)
    forged = report(grant)
    forged = Report(
        **{**{name: getattr(forged, name) for name in Report.__slots__}, "token": grant.token + 1}
    )
    before = everything()
    outcomes.record([forged])
    assert everything() == before
    assert len(events(ControlEventKind.FENCED_WRITE)) == 1


# A recording whose COMMIT was answered to nobody.


@pytest.mark.parametrize(
    "outcome",
    [AttemptOutcome.COMMITTED, AttemptOutcome.REFUSED, AttemptOutcome.NOT_SENT, AttemptOutcome.UNCERTAIN],
)
def test_ones_own_recording_repeated_is_silent(world: World, outcome: AttemptOutcome) -> None:
    said = report(claimed(world), outcome)
    outcomes.record([said])
    before = everything()

    outcomes.record([said])

    assert everything() == before
    assert not Evidence.objects.exists()
    assert not events()


def test_a_repeat_is_silent_even_when_a_successor_has_come_since(world: World) -> None:
    said = report(claimed(world), AttemptOutcome.NOT_SENT)
    outcomes.record([said])
    take_over(worker="worker-b")
    before = everything()
    outcomes.record([said])
    assert everything() == before
    assert not events()


def test_a_group_of_which_a_part_was_recorded_before_is_recorded_whole(world: World) -> None:
    first, second = granted(world, 2)
    outcomes.record([report(first)])
    outcomes.record([report(first), report(second)])
    assert [operation(each).state for each in (first, second)] == ["committed", "committed"]
    assert not events()


# Groups.


def granted(world: World, count: int) -> Sequence[Grant]:
    """Grants on as many resources."""
    for number in range(count):
        approved(world, str(number), target=f"order:{number}")
    return claim()


def test_a_group_is_recorded_together(world: World) -> None:
    grants = granted(world, 5)
    kinds = [
        AttemptOutcome.COMMITTED,
        AttemptOutcome.REFUSED,
        AttemptOutcome.UNCERTAIN,
        AttemptOutcome.NOT_SENT,
        AttemptOutcome.COMMITTED,
    ]
    outcomes.record([report(grant, kind) for grant, kind in zip(grants, kinds, strict=True)])
    assert [case_of(grant).state for grant in grants] == [
        "executed",
        "failed",
        "unknown",
        "executing",
        "executed",
    ]


BAD: list[dict[str, Any]] = [
    {"reference": "r" * 256},
    {"receipt": None},
    {"reference": None},
    {"receipt": "\x00"},
    {"note": "n" * 501},
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_one_bad_recording_takes_no_other_down(world: World, bad: dict[str, Any]) -> None:
    first, second, third = granted(world, 3)
    outcomes.record([report(first), report(second, **bad), report(third)])
    assert [operation(each).state for each in (first, second, third)] == [
        "committed",
        "outcome_unknown",
        "committed",
    ]
    assert attempts(second)[0].outcome == "uncertain"
    assert Evidence.objects.get().operation_id == second.order_id
    assert Finding.objects.get().subject == second.subject


def test_a_reference_that_belongs_to_another_operation_takes_no_other_down(world: World) -> None:
    first, second, third = granted(world, 3)
    outcomes.record([report(first, reference="re_1"), report(second, reference="re_1"), report(third)])
    states = sorted(operation(each).state for each in (first, second, third))
    assert states == ["committed", "committed", "outcome_unknown"]
    assert (Evidence.objects.get().reference, Finding.objects.get().kind) == ("re_1", "differs")


def test_a_case_that_is_not_where_its_operation_is_takes_no_other_down(world: World) -> None:
    first, second = granted(world, 2)
    with transaction.atomic():
        # Only a fault of ours could bring this about; the recording must not make it worse.
        second_case = case_of(second)
        Case.objects.filter(pk=second_case.pk).update(state="executed", revision=second_case.revision + 1)
        outcomes.record([report(first), report(second)])
        assert [operation(each).state for each in (first, second)] == ["committed", "started"]
        transaction.set_rollback(True)


def test_a_stale_and_a_valid_recording_share_a_group(world: World) -> None:
    stalled, successor = taken_over(world)
    approved(world, "other", target="order:other")
    (other,) = claim()
    outcomes.record([report(stalled), report(other), report(successor, worker="worker-b")])
    assert [operation(each).state for each in (other, successor)] == ["committed", "committed"]
    assert [kept.token for kept in Evidence.objects.all()] == [stalled.token]
    assert len(events(ControlEventKind.FENCED_WRITE)) == 1


@pytest.mark.parametrize("stale_first", [True, False])
def test_a_worker_that_took_over_from_itself_records_by_its_newest_token(
    world: World, stale_first: bool
) -> None:
    stalled = claimed(world, lease=LAPSED)
    (successor,) = take_over(worker="worker-a")
    said = [report(stalled, AttemptOutcome.UNCERTAIN), report(successor)]
    outcomes.record(said if stale_first else said[::-1])
    assert operation(stalled).state == "committed"
    assert [attempt.outcome for attempt in attempts(stalled)] == ["superseded", "committed"]
    assert [(kept.token, kept.outcome) for kept in Evidence.objects.all()] == [(stalled.token, "uncertain")]


def test_a_recording_alone_that_is_refused_is_unknown_and_its_evidence_kept(world: World) -> None:
    first, second = granted(world, 2)
    outcomes.record([report(first, reference="re_1")])
    outcomes.record([report(second, reference="re_1")])
    assert (operation(second).state, case_of(second).state) == ("outcome_unknown", "unknown")
    assert Evidence.objects.get(operation_id=second.order_id).reference == "re_1"
    assert Finding.objects.get().subject == second.subject


def test_another_effect_than_late_evidence_named_is_a_finding(world: World) -> None:
    stalled, successor = taken_over(world)
    outcomes.record([report(stalled, reference="re_first")])
    assert not Finding.objects.exists()
    outcomes.record([report(successor, worker="worker-b", reference="re_second")])
    found = Finding.objects.get()
    assert (found.kind, found.subject, found.reference) == ("twice", successor.subject, "re_second")


# What a report says beside its outcome.


def test_a_sink_that_knows_a_higher_token_than_the_ledger_ever_gave_stops_the_tool(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN, reason="fenced")
    pause = Halt.objects.get()
    assert (pause.tool_id, pause.began_by, pause.ends_at) == (grant.tool_id, "fence", None)
    assert Finding.objects.get().kind == "differs"
    approved(world, "1843", target="order:2")
    assert claim() == []


def test_an_effect_under_an_older_key_corrects_the_older_operation_and_the_case_is_executed(
    world: World,
) -> None:
    first = claimed(world)
    recorded(first, AttemptOutcome.REFUSED)
    case = case_of(first)
    cases.revise(actor=world.agent, case_id=case.pk, seen=tag(case), content=content())
    approve(current(case), world.reviewer)
    (second,) = claim()
    assert second.earlier_keys == (first.key,)

    earlier = (first.key, "re_first", '{"status":"succeeded"}')
    recorded(second, AttemptOutcome.REFUSED, sent=False, reason="earlier_effect", earlier=earlier)

    older, newer = Operation.objects.order_by("pk")
    assert (older.state, older.reference) == ("committed", "re_first")
    assert (newer.state, newer.reason) == ("failed_before_commit", "earlier_effect")
    assert case_of(first).state == "executed"
    assert len(events(ControlEventKind.EARLIER_EFFECT)) == len(events(ControlEventKind.CORRECTION)) == 1
