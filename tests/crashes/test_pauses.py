"""Paused workers, absent brokers, a database that restarts, messages out of time."""

from pathlib import Path
from uuid import uuid4

import pytest
from django.db import connection

from approvals.models import Case
from config.embedded.postgres import Server
from ledger.models import ControlEvent, Evidence
from ledger.states import OperationState
from tests.crashes.doorbell import Doorbell
from tests.crashes.stage import PATIENCE, PATIENT, Provider, Sink, Stage, wait_for

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_worker_stopped_beyond_its_lease_is_succeeded_and_its_late_recording_refused(
    stage: Stage, sink: Sink
) -> None:
    """The worked example's scene, for each sink: tokens n and n + 1, one effect, the late receipt kept."""
    a, b, case, held = stage.parked(sink, "answer")
    a.freeze()
    held.released.set()
    b.thaw()
    stage.wait_for_state(case, OperationState.COMMITTED)
    a.thaw()
    wait_for("the late receipt", lambda: Evidence.objects.filter(operation__order__subject=case.pk).exists())
    stage.assert_happened_once(case, sink)
    first, second = stage.attempts(case)
    late = Evidence.objects.get(operation__order__subject=case.pk)
    assert second.token == first.token + 1
    assert (second.sent, second.lookups) == (False, 1)
    assert (late.worker, late.token, late.reference) == (
        "a@test",
        first.token,
        stage.operation(case).reference,
    )
    wait_for(
        "the fenced write to be counted", lambda: ControlEvent.objects.filter(kind="fenced_write").exists()
    )
    assert (
        ControlEvent.objects.filter(kind="fenced_write", source="worker:a@test", subject=case.pk).count() == 1
    )


def test_a_worker_stopped_between_its_last_check_and_the_send_has_no_second_effect(
    stage: Stage, sink: Sink
) -> None:
    """It wakes and sends all the same: the provider answers by the key, the own sink refuses by the token."""
    a = stage.worker("a", sink, stops_before_it_sends=True, call_timeout="60")  # its call has time left
    b = stage.worker("b", sink, **PATIENT)
    b.wait_until_ready()
    b.freeze()
    a.wait_until_ready()
    case = stage.approved(sink)
    wait_for("A to stop before it sends", lambda: a.is_stopped)
    assert sink.effects() == []
    b.thaw()
    stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, sink)
    a.thaw()
    wait_for("A's report", lambda: Evidence.objects.filter(operation__order__subject=case.pk).exists())
    stage.assert_happened_once(case, sink)
    assert [each.outcome for each in stage.attempts(case)] == ["superseded", "committed"]


def test_a_request_that_leaves_before_the_pause_and_arrives_after_the_successors_has_no_second_effect(
    stage: Stage, sink: Sink
) -> None:
    """Stopped while its request is on the wire: the sink itself refuses or replays what arrives late."""
    a, b, case, held = stage.parked(sink, "request")
    a.freeze()
    b.thaw()
    stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, sink)
    a.thaw()
    held.released.set()
    wait_for("A's report", lambda: Evidence.objects.filter(operation__order__subject=case.pk).exists())
    stage.assert_happened_once(case, sink)


def test_the_broker_is_away_at_the_approval_and_nothing_waits_for_its_return(
    stage: Stage, sink: Sink
) -> None:
    worker = stage.worker("a", sink, **PATIENT)
    worker.wait_until_ready()
    with stage.broker.away():
        case = stage.approved(sink)
        stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, sink)
    other = stage.approved(sink, reference="1843", target="order:88214")
    stage.wait_for_state(other, OperationState.COMMITTED)


def test_a_worker_that_starts_after_the_broker_lost_every_message_finds_the_work(
    stage: Stage, sink: Sink
) -> None:
    case = stage.approved(sink)
    stage.broker.empty()
    stage.worker("a", sink, **PATIENT).wait_until_ready()
    stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, sink)


def test_the_same_message_twice_at_once_at_two_workers_has_one_effect(stage: Stage, sink: Sink) -> None:
    workers = [stage.worker(name, sink, **PATIENT) for name in ("a", "b")]
    for worker in workers:
        worker.wait_until_ready()
        worker.freeze()
    case = stage.approved(sink)
    stage.ring(case)
    for worker in workers:
        worker.thaw()
    stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, sink)
    assert len(stage.attempts(case)) == 1


def test_a_message_with_another_fingerprint_is_a_conflict_and_changes_nothing(
    stage: Stage, provider: Provider
) -> None:
    from celery import current_app

    worker = stage.worker("a", provider, **PATIENT)
    case = stage.approved(provider)
    worker.wait_until_ready()
    settled = stage.wait_for_state(case, OperationState.COMMITTED)
    for hints in ([{"key": settled.order.key, "fingerprint": "f" * 64}], "nonsense", [{"key": 5}], None):
        current_app.send_task("workers.execute", args=[hints], ignore_result=True)
    wait_for(
        "the conflict to be counted",
        lambda: ControlEvent.objects.filter(kind="fingerprint_conflict").exists(),
    )
    other = stage.approved(provider, reference="1843", target="order:88214")  # the worker is alive and well
    stage.wait_for_state(other, OperationState.COMMITTED)
    assert len(stage.attempts(case)) == 1


def test_a_warm_shutdown_records_the_call_that_is_on_the_wire(stage: Stage, provider: Provider) -> None:
    worker = stage.worker("a", provider, **PATIENT)
    provider.fault("hang_after_commit", seconds=1.0)
    case = stage.approved(provider)
    worker.wait_until_ready()
    wait_for("the effect", provider.effects)
    worker.terminate()
    assert stage.operation(case).state == OperationState.COMMITTED
    stage.assert_happened_once(case, provider)


@pytest.mark.parametrize("immediate", [False, True])
def test_a_restart_of_postgresql_between_claim_and_recording_loses_no_outcome(
    transactional_db: None,
    own_server: Server,
    provider: Provider,
    broker: Doorbell,
    tmp_path: Path,
    immediate: bool,
) -> None:
    broker.empty()
    stage = Stage(tmp_path, own_server.url("restarted"), broker)
    try:
        worker = stage.worker(f"a-{uuid4().hex[:4]}", provider, gated=True, **PATIENT)
        worker.wait_until_ready()
        held = provider.gate.hold("answer", provider.request)
        case = stage.approved(provider)
        assert held.reached.wait(PATIENCE)
        connection.close()
        own_server.restart(immediate=immediate)
        held.released.set()
        stage.wait_for_state(case, OperationState.COMMITTED)
        stage.assert_happened_once(case, provider)
        assert len(stage.attempts(case)) == 1
        assert Case.objects.get(pk=case.pk).revision == 4
    finally:
        stage.end()
