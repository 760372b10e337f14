"""A worker, or the process that approves, is killed or stopped at each point of the protocol; another carries on."""

import signal

from django.db import connection, transaction

from approvals.models import Case
from ledger.models import Evidence, Order
from tests.crashes.stage import WorkerProcess, approve_in_a_process, somebody_waits_for_a_lock, wait_for
from tests.evidence.scene import TIMES, Scene

_LOCK = "SET LOCAL idle_in_transaction_session_timeout = 0; LOCK TABLE ledger_attempt IN SHARE MODE"
"""Lets nobody write an attempt: a claim, or a recording, is held in its middle."""


def before_the_record(scene: Scene) -> Case:
    worker = scene.stage.worker("b", scene.sink)
    case = scene.proposed()
    assert approve_in_a_process(scene.stage, case, dying="before") == -signal.SIGKILL
    assert not Order.objects.filter(subject=case.pk).exists()
    worker.wait_until_ready()
    scene.stage.approve(case)
    scene.rest(case)
    return case


def after_the_record(scene: Scene) -> Case:
    worker = scene.stage.worker("b", scene.sink)
    case = scene.proposed()
    assert approve_in_a_process(scene.stage, case, dying="after") == -signal.SIGKILL
    worker.wait_until_ready()
    scene.rest(case)
    return case


def before_the_transition(scene: Scene) -> Case:
    first, successor = _two(scene)
    case = scene.proposed()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_LOCK)
        assert approve_in_a_process(scene.stage, case, dying="never") == 0  # ours is holding a lock
        wait_for("the claim to wait for its attempt's row", somebody_waits_for_a_lock)
        first.kill()
    assert scene.operation(case).state == "not_started"
    successor.thaw()
    scene.rest(case)
    return case


def after_the_transition(scene: Scene) -> Case:
    """Killed between its last look at the clock and the send: nothing has left."""
    first, successor = _two(scene, stops_before_it_sends=True)
    case = scene.approved()
    wait_for("the first worker to stop before it sends", lambda: first.is_stopped)
    first.kill()
    successor.thaw()
    scene.rest(case)
    return case


def before_the_request_arrives(scene: Scene) -> Case:
    first, successor, case, held = scene.stage.parked(scene.sink, "request")
    first.kill()
    held.dropped = True
    held.released.set()
    successor.thaw()
    scene.rest(case)
    return case


def after_the_effect(scene: Scene) -> Case:
    first, successor, case, held = scene.stage.parked(scene.sink, "answer")
    first.kill()
    held.released.set()
    successor.thaw()
    scene.rest(case)
    return case


def before_the_confirmation(scene: Scene) -> Case:
    first, successor, case, held = scene.stage.parked(scene.sink, "answer")
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_LOCK)
        held.released.set()
        wait_for("the recording to wait for its attempt's row", somebody_waits_for_a_lock)
        first.kill()
    assert scene.operation(case).state == "started"
    successor.thaw()
    scene.rest(case)
    return case


def after_the_confirmation(scene: Scene) -> Case:
    first, successor = _two(scene)
    case = scene.approved()
    scene.rest(case)
    first.kill()
    known = scene.attempts_ended(case)
    scene.stage.ring(case)
    successor.thaw()
    scene.another_is_carried_out()
    assert len(scene.stage.attempts(case)) == known
    return case


def paused_after_the_effect(scene: Scene) -> Case:
    first, successor, case, held = scene.stage.parked(scene.sink, "answer")
    first.freeze()
    held.released.set()
    successor.thaw()
    scene.rest(case)
    return _resumed(scene, first, case)


def paused_before_the_send(scene: Scene) -> Case:
    """It wakes beyond its lease and, its call having time left, sends all the same."""
    first, successor = _two(scene, stops_before_it_sends=True, call_timeout="60")
    case = scene.approved()
    wait_for("the first worker to stop before it sends", lambda: first.is_stopped)
    successor.thaw()
    scene.rest(case)
    return _resumed(scene, first, case)


def paused_on_the_wire(scene: Scene) -> Case:
    """Its request arrives after the successor has done what it could."""
    first, successor, case, held = scene.stage.parked(scene.sink, "request")
    first.freeze()
    successor.thaw()
    scene.rest(case)
    held.released.set()
    return _resumed(scene, first, case)


def _two(
    scene: Scene,
    *,
    stops_before_it_sends: bool = False,
    call_timeout: str = TIMES["COUNTERSIGN_CALL_TIMEOUT"],
) -> tuple[WorkerProcess, WorkerProcess]:
    """The first one looks for work, its successor is frozen."""
    first = scene.stage.worker(
        "a", scene.sink, stops_before_it_sends=stops_before_it_sends, call_timeout=call_timeout
    )
    successor = scene.stage.worker("b", scene.sink)
    successor.wait_until_ready()
    successor.freeze()
    first.wait_until_ready()
    return first, successor


def _resumed(scene: Scene, first: WorkerProcess, case: Case) -> Case:
    """Its report comes too late and is kept; what the successor knows then is the outcome."""
    first.thaw()
    wait_for("the late report", Evidence.objects.filter(operation__order__subject=case.pk).exists)
    scene.rest(case)
    return case
