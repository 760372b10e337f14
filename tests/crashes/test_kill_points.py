"""A worker is killed at each point of the protocol, for each sink; another carries on. Effects counted at the sink."""

import signal

import pytest
from django.db import connection, transaction

from approvals.models import Case
from ledger.models import Order
from ledger.states import OperationState
from tests.crashes.stage import (
    PATIENT,
    Sink,
    Stage,
    approve_in_a_process,
    somebody_waits_for_a_lock,
    wait_for,
)


def test_killed_before_the_operation_record_nothing_exists_and_the_approval_can_be_given_again(
    stage: Stage, sink: Sink
) -> None:
    worker = stage.worker("b", sink, **PATIENT)
    case = stage.proposed(sink)
    assert approve_in_a_process(stage, case, dying="before") == -signal.SIGKILL
    assert Order.objects.filter(subject=case.pk).count() == 0
    assert Case.objects.get(pk=case.pk).state == "pending"
    worker.wait_until_ready()
    stage.approve(case)
    stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, sink)


def test_killed_after_the_operation_record_and_before_the_doorbell_the_sweep_finds_it(
    stage: Stage, sink: Sink
) -> None:
    worker = stage.worker("b", sink, **PATIENT)
    case = stage.proposed(sink)
    assert approve_in_a_process(stage, case, dying="after") == -signal.SIGKILL
    assert stage.operation(case).order.approved_revision == 2
    worker.wait_until_ready()
    stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, sink)
    assert [each.worker for each in stage.attempts(case)] == ["b@test"]


def test_killed_before_the_conditional_transition_commits_the_case_is_still_approved(
    stage: Stage, sink: Sink
) -> None:
    a, b = stage.worker("a", sink), stage.worker("b", sink, **PATIENT)
    b.wait_until_ready()
    b.freeze()
    a.wait_until_ready()
    case = stage.proposed(sink)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE ledger_attempt IN SHARE MODE")
        assert approve_in_a_process(stage, case, dying="never") == 0  # ours is holding a lock
        wait_for("the claim to wait for its attempt's row", somebody_waits_for_a_lock)
        a.kill()
    operation = stage.operation(case)
    assert (operation.state, operation.token, Case.objects.get(pk=case.pk).state) == (
        "not_started",
        None,
        "approved",
    )
    b.thaw()
    stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, sink)


def test_killed_after_the_transition_and_before_the_request_arrives_the_successor_sends_it_once(
    stage: Stage, sink: Sink
) -> None:
    a, b, case, held = stage.parked(sink, "request")
    assert (stage.operation(case).state, Case.objects.get(pk=case.pk).state) == ("started", "executing")
    a.kill()
    held.dropped = True
    held.released.set()
    assert sink.effects() == []
    b.thaw()
    stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, sink)
    assert [each.outcome for each in stage.attempts(case)] == ["superseded", "committed"]


def test_killed_after_the_effect_and_before_its_answer_the_successor_finds_it_and_sends_nothing(
    stage: Stage, sink: Sink
) -> None:
    a, b, case, held = stage.parked(sink, "answer")
    a.kill()
    held.released.set()
    b.thaw()
    stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, sink)
    first, second = stage.attempts(case)
    assert (first.outcome, second.outcome, second.sent, second.lookups) == (
        "superseded",
        "committed",
        False,
        1,
    )


def test_killed_before_the_local_confirmation_commits_the_successor_confirms(
    stage: Stage, sink: Sink
) -> None:
    a, b, case, held = stage.parked(sink, "answer", call_timeout="3")
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE ledger_attempt IN SHARE MODE")
        held.released.set()
        wait_for("the recording to wait for its attempt's row", somebody_waits_for_a_lock)
        a.kill()
    assert stage.operation(case).state == "started"
    b.thaw()
    stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, sink)


def test_killed_after_the_local_confirmation_the_same_message_changes_nothing(
    stage: Stage, sink: Sink
) -> None:
    a, b = stage.worker("a", sink, **PATIENT), stage.worker("b", sink, **PATIENT)
    b.wait_until_ready()
    b.freeze()
    a.wait_until_ready()
    case = stage.approved(sink)
    before = stage.wait_for_state(case, OperationState.COMMITTED)
    a.kill()
    stage.ring(case)
    b.thaw()
    other = stage.approved(sink, reference="1843", target="order:88214")
    stage.wait_for_state(other, OperationState.COMMITTED)
    after = stage.operation(case)
    assert (after.token, after.settled_at, after.reference) == (
        before.token,
        before.settled_at,
        before.reference,
    )
    assert len(stage.attempts(case)) == 1
    assert sink.effects().count(before.order.key) == 1


pytestmark = pytest.mark.django_db(transaction=True)
