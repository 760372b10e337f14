"""A person's word on an outcome: when it may be given, what it rests on, and what it makes of case and operation."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError
from django.db.models.functions import Now
from pytest_django import DjangoCaptureOnCommitCallbacks

from accounts.actors import Actor
from accounts.models import Member, Role
from approvals import compensations, corrections, resolutions
from approvals.errors import (
    AlreadyExecuted,
    CannotBeAsked,
    EvidenceRequired,
    InvalidContent,
    NotCompensable,
    NotFound,
    NotPermitted,
    NotPossibleYet,
    OperationMoved,
    PersonRequired,
    ReferenceRequired,
    ReferenceTaken,
    SecondPersonNeeded,
    SelfApproval,
    StateForbids,
    UndoneAlready,
)
from approvals.models import Revision
from approvals.resolutions import Resolved, Word
from approvals.states import Verdict
from ledger import attestations, clock, findings
from ledger.claims import Grant
from ledger.models import Attempt, Attestation, Finding, Operation, Resource
from ledger.states import AttemptOutcome, AttestedOutcome, ControlEventKind, EnforcementClass, FindingKind
from tests.worlds import (
    LAPSED,
    World,
    approve,
    approved,
    attempts,
    case_of,
    claim,
    claimed,
    current,
    events,
    history,
    new_world,
    operation,
    proposed,
    recorded,
    report,
    revised,
    say,
    switch_off,
    take_over,
    triggers_off,
    version_with,
    withdrawn,
)
from workers import outcomes

LOOKED = "Looked at the provider's own list of refunds at 14:02."


@pytest.fixture
def unknown(world: World) -> Grant:
    """A grant of which nobody knows what came."""
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    return grant


def attest(
    grant: Grant,
    by: Actor,
    testimony: AttestedOutcome = AttestedOutcome.HAPPENED,
    *,
    seen: str | None = None,
    **said: Any,
) -> Resolved:
    told = {"evidence": LOOKED, "reference": "re_1" if testimony == AttestedOutcome.HAPPENED else "", **said}
    seen = seen or attestations.tag_of(operation(grant))
    return resolutions.attest(actor=by, key=grant.key, seen=seen, word=Word(testimony, **told))


def long_ago(grant: Grant, **ago: float) -> None:
    """Moves the operation's attempts so far back."""
    with triggers_off():
        Attempt.objects.filter(operation_id=grant.order_id).update(
            started_at=Now() - timedelta(**ago), ended_at=Now() - timedelta(**ago)
        )


# It happened.


def test_that_it_happened_settles_case_and_operation_and_stays_the_word_of_a_person(
    world: World, unknown: Grant
) -> None:
    attest(unknown, world.operator)
    it = operation(unknown)
    assert (it.state, it.reference, it.resource.version, it.resource.holder_id) == (
        "committed",
        "re_1",
        1,
        None,
    )
    assert history(case_of(unknown))[-1][1:] == ("executed", "executed")
    last = case_of(unknown).revisions.latest("number")
    assert (last.actor_kind, last.actor_name, last.reason_code, last.reason) == (
        "person",
        "Olga Demo",
        "attested",
        LOOKED,
    )
    (word,) = Attestation.objects.all()
    assert (word.name, word.token) == ("Olga Demo", it.token)
    assert it.token is not None
    assert it.token > unknown.token


def test_a_worker_that_wakes_after_the_word_is_fenced_and_its_receipt_is_kept(world: World) -> None:
    grant = claimed(world, lease=LAPSED)
    attest(grant, world.operator)
    outcomes.record([report(grant, reference="re_1")])
    assert [each.outcome for each in attempts(grant)] == ["superseded"]
    assert operation(grant).evidence.get().reference == "re_1"
    assert not Finding.objects.exists()


def test_a_receipt_that_contradicts_the_word_opens_a_finding(world: World) -> None:
    grant = claimed(world, lease=LAPSED)
    attest(grant, world.operator)
    outcomes.record([report(grant, reference="re_other")])
    assert Finding.objects.get().kind == "late"


def test_nothing_is_said_over_a_worker_that_holds_it(world: World) -> None:
    grant = claimed(world)
    with pytest.raises(NotPossibleYet) as refusal:
        attest(grant, world.operator)
    assert refusal.value.until == operation(grant).due_at
    assert not Attestation.objects.exists()
    assert len(events(ControlEventKind.REFUSED_ACT)) == 1


@pytest.mark.parametrize("reference", ["", "  ", "re\n1", "x" * 256])
def test_that_it_happened_needs_the_sinks_reference(world: World, unknown: Grant, reference: str) -> None:
    with pytest.raises(ReferenceRequired):
        attest(unknown, world.operator, reference=reference)


def test_a_tool_whose_sink_gives_no_reference_is_attested_in_words(world: World) -> None:
    version_with(world, enforcement=EnforcementClass.NONE, key_window=None)
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    attest(grant, world.operator, reference="")
    assert operation(grant).reference == f"attested:{grant.key[:12]}"


def test_a_reference_that_is_another_operations_is_refused(world: World, unknown: Grant) -> None:
    other = claimed(world, "1843", target="order:2")
    recorded(other, reference="re_1")
    with pytest.raises(ReferenceTaken, match=operation(other).order.key):
        attest(unknown, world.operator)
    assert operation(unknown).state == "outcome_unknown"
    assert not Attestation.objects.exists()


def test_a_word_rests_on_something(world: World, unknown: Grant) -> None:
    with pytest.raises(EvidenceRequired):
        attest(unknown, world.operator, evidence="  ")


# It did not happen.


def test_while_the_key_is_good_nobody_can_say_that_it_did_not_happen(world: World, unknown: Grant) -> None:
    with pytest.raises(NotPossibleYet) as refusal:
        attest(unknown, world.operator, AttestedOutcome.DID_NOT_HAPPEN)
    assert refusal.value.until is not None
    assert refusal.value.until > clock.now() + timedelta(hours=23)


def test_once_the_window_is_over_that_it_did_not_happen_settles_it(world: World, unknown: Grant) -> None:
    long_ago(unknown, hours=25)
    attest(unknown, world.operator, AttestedOutcome.DID_NOT_HAPPEN)
    it = operation(unknown)
    assert (it.state, it.reason, it.resource.holder_id) == ("failed_before_commit", "attested", None)
    assert case_of(unknown).state == "failed"


@pytest.mark.parametrize("enforcement", [EnforcementClass.NATURAL_REFERENCE, EnforcementClass.NONE])
def test_without_a_key_the_longest_call_and_the_settle_time_must_have_passed(
    world: World, enforcement: EnforcementClass
) -> None:
    version_with(world, enforcement=enforcement, key_window=None, settle_time=timedelta(seconds=60))
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    long_ago(grant, seconds=70)
    with pytest.raises(NotPossibleYet):
        attest(grant, world.operator, AttestedOutcome.DID_NOT_HAPPEN)
    long_ago(grant, seconds=81)  # twenty for the call, sixty to settle
    attest(grant, world.operator, AttestedOutcome.DID_NOT_HAPPEN)
    assert operation(grant).state == "failed_before_commit"


def test_a_sink_of_ones_own_settles_itself(world: World) -> None:
    parameters = {"amount_minor": 5, "currency": "EUR"}
    grant = claimed(world, action="ledger_refund", parameters=parameters)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    long_ago(grant, days=9)
    with pytest.raises(NotPossibleYet, match="settles it"):
        attest(grant, world.operator, AttestedOutcome.DID_NOT_HAPPEN)


def test_a_late_report_of_an_effect_keeps_anybody_from_saying_that_there_is_none(world: World) -> None:
    grant = claimed(world, lease=LAPSED)
    (successor,) = take_over()
    outcomes.record([report(grant, reference="re_late")])
    recorded(successor, AttemptOutcome.UNCERTAIN)
    long_ago(grant, hours=25)
    with pytest.raises(NotPossibleYet, match="re_late"):
        attest(grant, world.operator, AttestedOutcome.DID_NOT_HAPPEN)


# Whose word, on what.


@pytest.mark.parametrize("handle", ["reviewer", "admin", "auditor"])
def test_only_an_operator_settles_an_outcome(world: World, unknown: Grant, handle: str) -> None:
    with pytest.raises(NotPermitted):
        attest(unknown, world.person(handle))


def test_an_agent_and_a_stranger_settle_nothing(world: World, unknown: Grant) -> None:
    with pytest.raises(PersonRequired):
        attest(unknown, world.agent)
    with pytest.raises(NotFound):
        attest(unknown, new_world().operator)


def test_a_word_on_what_has_moved_since_is_refused_and_counted(world: World, unknown: Grant) -> None:
    seen = attestations.tag_of(operation(unknown))
    (again,) = take_over()
    recorded(again, AttemptOutcome.UNCERTAIN)  # sent once more
    with pytest.raises(OperationMoved):
        attest(unknown, world.operator, seen=seen)
    assert len(events(ControlEventKind.VERSION_CONFLICT)) == 1


def test_a_word_during_a_look_up_is_told_who_holds_it_and_not_that_something_came_in(
    world: World, unknown: Grant
) -> None:
    before = attestations.tag_of(operation(unknown))
    take_over()
    during = attestations.tag_of(operation(unknown))
    assert during != before  # a reader who asks with the old tag must see the grant
    for seen in (before, during):
        with pytest.raises(NotPossibleYet, match="holds it"):
            attest(unknown, world.operator, seen=seen)


def test_look_ups_that_find_nothing_leave_the_tag_and_a_word_on_it_stands(
    world: World, unknown: Grant
) -> None:
    seen = attestations.tag_of(operation(unknown))
    for _night in range(3):
        (again,) = take_over()
        during = attestations.tag_of(operation(unknown))
        recorded(again, AttemptOutcome.UNCERTAIN, sent=False, lookups=1)
    assert attestations.tag_of(operation(unknown)) == seen
    attest(unknown, world.operator, seen=during)
    assert operation(unknown).state == "committed"


def test_a_look_up_whose_worker_fell_silent_moves_the_tag_until_it_is_known_to_have_sent_nothing(
    world: World, unknown: Grant
) -> None:
    seen = attestations.tag_of(operation(unknown))
    take_over(lease=LAPSED)
    silent = attestations.tag_of(operation(unknown))
    with pytest.raises(OperationMoved):
        attest(unknown, world.operator, seen=seen)
    outcomes.record([report(unknown, reference="re_late")])
    with pytest.raises(OperationMoved):
        attest(unknown, world.operator, seen=silent)


def test_the_same_word_again_is_answered_and_another_comes_too_late(world: World, unknown: Grant) -> None:
    seen = attestations.tag_of(operation(unknown))
    attest(unknown, world.operator, seen=seen)
    assert attest(unknown, world.operator, seen=seen).replayed
    with pytest.raises(AlreadyExecuted):
        attest(unknown, world.operator, AttestedOutcome.DID_NOT_HAPPEN, seen=seen)
    assert Attestation.objects.count() == 1


def test_still_unknown_is_written_down_and_changes_nothing(world: World, unknown: Grant) -> None:
    until = clock.now() + timedelta(hours=4)
    attest(unknown, world.operator, AttestedOutcome.STILL_UNKNOWN, until=until)
    assert operation(unknown).state == "outcome_unknown"
    assert Attestation.objects.get().until == until


@pytest.mark.parametrize("hours", [-1, 24 * 31])
def test_it_is_left_unknown_until_a_time_to_come_and_not_for_ever(
    world: World, unknown: Grant, hours: int
) -> None:
    until = clock.now() + timedelta(hours=hours)
    with pytest.raises(InvalidContent):
        attest(unknown, world.operator, AttestedOutcome.STILL_UNKNOWN, until=until)


# Two people.


@pytest.fixture
def for_two(world: World) -> tuple[Grant, Actor, Actor]:
    """An unknown outcome whose tool asks for two people, and two operators."""
    version_with(world, second_person=True)
    Member.objects.filter(pk=world.member("admin").pk).update(roles=[Role.OPERATOR])
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    return grant, world.operator, world.person("admin")


def test_where_two_are_asked_for_the_first_word_waits_and_the_second_settles(
    for_two: tuple[Grant, Actor, Actor],
) -> None:
    grant, first, second = for_two
    assert attest(grant, first).waits_for_second
    assert operation(grant).state == "outcome_unknown"
    with pytest.raises(SecondPersonNeeded):
        attest(grant, first)
    assert not attest(grant, second).waits_for_second
    assert operation(grant).state == "committed"
    assert [each.name for each in Attestation.objects.order_by("pk")] == ["Olga Demo", "Adam Demo"]


def test_two_who_say_different_things_settle_nothing(for_two: tuple[Grant, Actor, Actor]) -> None:
    grant, first, second = for_two
    attest(grant, first)
    assert attest(grant, second, reference="re_2").waits_for_second
    assert operation(grant).state == "outcome_unknown"


def test_a_first_word_is_void_once_new_evidence_has_come(for_two: tuple[Grant, Actor, Actor]) -> None:
    grant, first, second = for_two
    attest(grant, first)
    outcomes.record([report(grant, reference="re_late")])  # a report that comes too late is evidence
    assert attest(grant, second).waits_for_second
    assert operation(grant).state == "outcome_unknown"


def test_who_says_something_else_takes_the_first_word_back(
    world: World, for_two: tuple[Grant, Actor, Actor]
) -> None:
    grant, first, second = for_two
    attest(grant, first)
    attest(grant, first, AttestedOutcome.STILL_UNKNOWN)
    assert attest(grant, second).waits_for_second
    assert operation(grant).state == "outcome_unknown"


@pytest.mark.parametrize("how", ["role", "member", "user"])
def test_a_first_word_counts_only_while_its_giver_may_say_it(
    world: World, for_two: tuple[Grant, Actor, Actor], how: str
) -> None:
    grant, first, second = for_two
    attest(grant, first)
    switch_off(world, "operator", how)
    assert attest(grant, second).waits_for_second
    assert operation(grant).state == "outcome_unknown"


def test_a_first_word_is_void_once_it_may_have_been_sent_after_it(world: World) -> None:
    version_with(world, second_person=True)
    Member.objects.filter(pk=world.member("admin").pk).update(roles=[Role.OPERATOR])
    grant = claimed(world)
    recorded(grant, AttemptOutcome.NOT_SENT)
    attest(grant, world.operator, AttestedOutcome.DID_NOT_HAPPEN)
    (again,) = take_over()
    recorded(again, AttemptOutcome.UNCERTAIN)
    long_ago(grant, hours=25)
    assert attest(grant, world.person("admin"), AttestedOutcome.DID_NOT_HAPPEN).waits_for_second
    assert operation(grant).state == "outcome_unknown"


def test_two_who_saw_the_same_page_settle_it_with_the_same_word(for_two: tuple[Grant, Actor, Actor]) -> None:
    grant, first, second = for_two
    seen = attestations.tag_of(operation(grant))
    attest(grant, first, seen=seen)
    attest(grant, second, seen=seen)
    assert operation(grant).state == "committed"


# Asking the sink, and ending what was never sent.


def test_asking_the_sink_makes_the_operation_due_at_once(world: World, unknown: Grant) -> None:
    Operation.objects.update(due_at=Now() + timedelta(hours=1))
    assert take_over() == []
    seen = attestations.tag_of(operation(unknown))
    resolutions.look_now(actor=world.operator, key=unknown.key, seen=seen)
    assert len(take_over()) == 1


def test_a_sink_that_cannot_be_asked_is_not_asked_about_what_may_have_been_sent(world: World) -> None:
    version_with(world, enforcement=EnforcementClass.NONE, key_window=None)
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    with pytest.raises(CannotBeAsked):
        resolutions.look_now(actor=world.operator, key=grant.key, seen=attestations.tag_of(operation(grant)))
    assert len(events(ControlEventKind.REFUSED_ACT)) == 1


def test_what_was_never_sent_is_tried_at_once_at_any_sink(world: World) -> None:
    version_with(world, enforcement=EnforcementClass.NONE, key_window=None)
    grant = claimed(world)
    recorded(grant, AttemptOutcome.NOT_SENT, wait=3600.0)
    assert take_over() == []
    resolutions.look_now(actor=world.operator, key=grant.key, seen=attestations.tag_of(operation(grant)))
    assert [each.may_send for each in take_over()] == [True]


def test_what_was_set_aside_comes_back_once_somebody_asks_for_a_look(world: World) -> None:
    grant = claimed(world, lease=LAPSED)
    while take_over(lease=LAPSED):
        pass
    assert operation(grant).reason == "set_aside"
    resolutions.look_now(actor=world.operator, key=grant.key, seen=attestations.tag_of(operation(grant)))
    assert [each.order_id for each in take_over()] == [grant.order_id]


def test_what_was_never_sent_is_stopped(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.NOT_SENT)
    seen = attestations.tag_of(operation(grant))
    resolutions.stop(actor=world.operator, key=grant.key, seen=seen, reason="No longer wanted.")
    assert (operation(grant).state, operation(grant).reason) == ("failed_before_commit", "never_sent")
    assert history(case_of(grant))[-1][1:] == ("failed", "stopped")
    assert claim() == take_over() == []


def test_a_stop_wakes_the_workers_for_what_waited_for_the_resource(
    world: World, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.NOT_SENT)
    seen = attestations.tag_of(operation(grant))
    with django_capture_on_commit_callbacks() as rings:
        resolutions.stop(actor=world.operator, key=grant.key, seen=seen, reason="No longer wanted.")
    assert len(rings) == 1


def test_what_may_have_been_sent_is_not_stopped(world: World) -> None:
    grant = claimed(world, lease=LAPSED)
    with pytest.raises(NotPossibleYet):
        resolutions.stop(
            actor=world.operator, key=grant.key, seen=attestations.tag_of(operation(grant)), reason="Stop."
        )


def test_what_has_not_started_is_withdrawn_and_not_stopped(world: World) -> None:
    it = operation(approved(world))
    with pytest.raises(StateForbids):
        resolutions.stop(actor=world.operator, key=it.order.key, seen=attestations.tag_of(it), reason="Stop.")


# Findings.


def test_a_finding_that_a_person_closes_lets_its_case_go_on(world: World) -> None:
    case = approved(world)
    findings.open_finding(
        tenant_id=world.tenant.pk,
        kind=FindingKind.TWICE,
        about="re_1",
        subject=case.pk,
        order_id=None,
    )
    assert claim() == []
    closed = findings.close(
        finding_ids=[Finding.objects.get().pk], by=world.operator.source, because="It was another's."
    )
    assert closed == 1
    assert [grant.subject for grant in claim()] == [case.pk]


# Corrections.


def test_the_sinks_own_record_corrects_what_was_taken_for_failed(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.REFUSED)
    assert correct(grant)
    it = operation(grant)
    assert (it.state, it.reference, it.reason, it.resource.version) == ("committed", "re_1", None, 1)
    assert history(case_of(grant))[-1][1:] == ("executed", "corrected")
    assert len(events(ControlEventKind.CORRECTION)) == 1
    assert Finding.objects.get().kind == "late"
    assert not correct(grant)  # once


def test_a_correction_ends_a_later_operation_that_has_not_started(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.REFUSED)
    case = again(world, grant)
    later = operation(case)
    assert correct(grant)
    later.refresh_from_db()
    assert (later.state, later.reason) == ("failed_before_commit", "earlier_effect")
    assert current(case).state == "executed"
    assert claim() == []


def test_nothing_is_corrected_while_another_operation_of_the_action_may_act(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.REFUSED)
    case = again(world, grant)
    claim()
    assert not correct(grant)
    assert Operation.objects.get(pk=grant.order_id).state == "failed_before_commit"
    assert Finding.objects.get().kind == "late"
    assert current(case).state == "executing"


def test_an_effect_of_an_action_that_has_happened_already_is_found_twice(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.REFUSED)
    again(world, grant)
    (second,) = claim()
    recorded(second)
    assert not correct(grant)
    assert Finding.objects.get().kind == "twice"


def test_the_effect_of_a_reference_that_is_anothers_is_found_twice(world: World) -> None:
    grant, other = claimed(world), claimed(world, "1843", target="order:2")
    recorded(grant, AttemptOutcome.REFUSED)
    recorded(other, reference="re_1")
    assert not correct(grant)
    assert operation(grant).state == "failed_before_commit"
    assert Finding.objects.get().kind == "twice"


def test_an_undoing_that_happened_after_another_was_opened_is_found_twice(
    world: World, happened: Grant
) -> None:
    first = compensations.compensate(actor=world.operator, key=happened.key, rationale="").case
    approve(current(first), world.reviewer)
    (undoing,) = claim()
    recorded(undoing, AttemptOutcome.REFUSED)
    withdrawn(world, first)
    assert not compensations.compensate(actor=world.operator, key=happened.key, rationale="").replayed
    assert not correct(undoing)
    assert Finding.objects.get(subject=first.pk).kind == "twice"


def test_a_correction_that_a_broken_table_refuses_is_not_taken_for_a_second_effect(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.REFUSED)
    taken = case_of(grant).revisions.latest("number")
    with triggers_off():  # a hand at the database has written the revision that the correction would write
        Revision.objects.create(
            case_id=taken.case_id,
            number=taken.number + 1,
            state=taken.state,
            act=taken.act,
            proposal_id=taken.proposal_id,
            actor_kind="system",
            actor_id=0,
            actor_name="nobody",
        )
    with pytest.raises(IntegrityError):
        correct(grant)
    assert not Finding.objects.exists()
    with triggers_off():
        Revision.objects.filter(actor_name="nobody").delete()


def test_a_corrected_case_shows_what_happened_and_not_what_was_proposed_since(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.REFUSED)
    other = revised(world, case_of(grant), amount_minor=90_000)
    assert other.proposal.amount_minor == 90_000
    assert correct(grant)
    case = case_of(grant)
    assert (case.state, case.proposal.amount_minor) == ("executed", 125_000)
    assert case.revisions.latest("number").proposal.amount_minor == 125_000


def test_what_undoes_a_corrected_effect_is_as_large_as_the_effect(world: World) -> None:
    undone_by = {
        "action": "ledger_refund",
        "parameters": {"amount_minor": "{amount_minor}", "currency": "{currency}"},
    }
    version_with(world, compensation=undone_by)
    grant = claimed(world)
    recorded(grant, AttemptOutcome.REFUSED)
    revised(world, case_of(grant), amount_minor=90_000)
    assert correct(grant)
    undone = compensations.compensate(actor=world.operator, key=grant.key, rationale="").case
    assert undone.proposal.amount_minor == 125_000


def correct(grant: Grant) -> bool:
    return corrections.correct(
        order_id=grant.order_id,
        receipt_reference="re_1",
        receipt_text='{"status":"succeeded"}',
        source="reconciliation",
    )


def again(world: World, grant: Grant) -> Any:
    """The case of the failed grant, proposed and approved once more."""
    from approvals import cases
    from tests.worlds import content, tag

    case = case_of(grant)
    cases.revise(actor=world.agent, case_id=case.pk, seen=tag(case), content=content())
    return approve(current(case), world.reviewer)


# Compensations.


@pytest.fixture
def happened(world: World) -> Grant:
    """An effect that is proven, of a tool that names what undoes it."""
    undone_by = {
        "action": "ledger_refund",
        "parameters": {"amount_minor": "{amount_minor}", "currency": "{currency}"},
    }
    version_with(world, compensation=undone_by)
    grant = claimed(world)
    recorded(grant)
    return grant


def test_an_effect_that_is_proven_is_undone_by_one_case_that_names_it(world: World, happened: Grant) -> None:
    first = compensations.compensate(actor=world.operator, key=happened.key, rationale="Wrong order.")
    second = compensations.compensate(actor=world.operator, key=happened.key, rationale="Wrong order.")
    assert (first.case, second.replayed) == (second.case, True)
    case = current(first.case)
    assert (case.compensates_id, case.action, case.step, case.state) == (
        happened.order_id,
        "ledger_refund",
        1,
        "pending",
    )
    assert case.proposal.amount_minor == 125_000
    approve(case, world.reviewer)
    assert operation(case).order.compensates_id == happened.order_id


def test_an_agent_that_takes_the_last_step_there_is_does_not_keep_an_effect_from_being_undone(
    world: World, happened: Grant
) -> None:
    for step in (1, 2**31 - 1):
        parameters = {"amount_minor": 1, "currency": "EUR"}
        proposed(world, action="ledger_refund", step=step, parameters=parameters)
    case = compensations.compensate(actor=world.operator, key=happened.key, rationale="").case
    assert (case.compensates_id, case.step) == (happened.order_id, 2)


def test_who_opens_a_compensation_does_not_approve_it(world: World, happened: Grant) -> None:
    Member.objects.filter(pk=world.member("operator").pk).update(roles=[Role.OPERATOR, Role.REVIEWER])
    case = compensations.compensate(actor=world.operator, key=happened.key, rationale="").case
    with pytest.raises(SelfApproval):
        say(Verdict.APPROVE, case, world.operator)


def test_only_a_proven_effect_can_be_undone(world: World, unknown: Grant) -> None:
    with pytest.raises(NotCompensable):
        compensations.compensate(actor=world.operator, key=unknown.key, rationale="")
    assert Resource.objects.count() == 1
    assert proposed(world, "other").compensates_id is None


@pytest.mark.parametrize("how", ["proposed again", "reopened"])
def test_an_effect_that_one_case_undoes_is_not_undone_by_an_older_one(
    world: World, happened: Grant, how: str
) -> None:
    first = compensations.compensate(actor=world.operator, key=happened.key, rationale="").case
    parameters = {"amount_minor": 125_000, "currency": "EUR"}
    if how == "reopened":
        say(Verdict.REJECT, first, world.reviewer)
    else:
        withdrawn(world, first)
    compensations.compensate(actor=world.operator, key=happened.key, rationale="")
    revive: Callable[[], object] = partial(say, Verdict.REOPEN, first, world.reviewer)
    if how != "reopened":
        revive = partial(revised, world, first, parameters=parameters)
    with pytest.raises(UndoneAlready):
        revive()
    assert current(first).state in ("rejected", "withdrawn")
