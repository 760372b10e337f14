"""The database refuses, restarts or crashes; the broker is away or forgets."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection, transaction

from approvals.models import Case
from ledger import budgets
from ledger.models import BudgetPeriod
from ledger.states import BudgetSpan, ControlEventKind
from tests.crashes.stage import PATIENCE, approve_in_a_process, somebody_waits_for_a_lock, wait_for
from tests.evidence.scene import Scene


@dataclass(frozen=True, slots=True)
class Point:
    """Where in the protocol a statement, or the COMMIT after it, fails once."""

    table: str
    act: str
    when: str
    sqlstate: str
    at_commit: bool = False


_SERIALIZATION, _DEADLOCK = "40001", "40P01"
_CLAIMS = ("approvals_case", "UPDATE", "new.state = 'executing'")
_GRANTS = ("ledger_attempt", "INSERT", "true")
_RECORDS = ("ledger_attempt", "UPDATE", "new.ended_at IS NOT NULL")
POINTS = [
    (where, point.sqlstate, point)
    for where, point in (
        ("at the claim's first write", Point(*_CLAIMS, _SERIALIZATION)),
        ("at the claim's last write", Point(*_GRANTS, _SERIALIZATION)),
        ("at the claim's COMMIT", Point(*_GRANTS, _SERIALIZATION, at_commit=True)),
        ("at the claim's first write", Point(*_CLAIMS, _DEADLOCK)),
        ("at the recording", Point(*_RECORDS, _DEADLOCK)),
        ("at the recording's COMMIT", Point(*_RECORDS, _SERIALIZATION, at_commit=True)),
    )
]
"""Where, with which SQLSTATE. What a trigger refuses, PostgreSQL refuses: the worker cannot tell the two apart."""

_FUNCTION = """
CREATE SEQUENCE evidence_once;
CREATE FUNCTION evidence_fails() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('evidence_once') = 1 THEN  -- a sequence does not roll back: it fails once
        RAISE EXCEPTION 'as ordered' USING ERRCODE = TG_ARGV[0];
    END IF;
    RETURN NEW;
END $$;
"""


@contextmanager
def _failing(point: Point) -> Iterator[None]:
    timing = "CONSTRAINT TRIGGER evidence AFTER" if point.at_commit else "TRIGGER evidence BEFORE"
    deferred = "DEFERRABLE INITIALLY DEFERRED" if point.at_commit else ""
    with connection.cursor() as cursor:
        cursor.execute(_FUNCTION)
        cursor.execute(
            f"CREATE {timing} {point.act} ON {point.table} {deferred} FOR EACH ROW WHEN ({point.when})"
            f" EXECUTE FUNCTION evidence_fails('{point.sqlstate}')"
        )
    try:
        yield
        with connection.cursor() as cursor:
            cursor.execute("SELECT last_value, is_called FROM evidence_once")
            assert cursor.fetchone()[1], "nothing came to the point that was to fail"
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION evidence_fails CASCADE; DROP SEQUENCE evidence_once")


def fails_once(point: Point, scene: Scene) -> Case:
    """A budget counts what moves money, so that the claim is SERIALIZABLE; the rest is claimed in a batch."""
    _budget(scene)
    worker = scene.stage.worker("a", scene.sink)
    worker.wait_until_ready()
    with _failing(point):
        case = scene.approved()
        scene.rest(case)
        worker.kill()
    return case


def behind_another_writer(scene: Scene) -> Case:
    """The claim waits for a row that another transaction then changes: its snapshot is no longer good."""
    budget = _budget(scene)
    scene.stage.worker("a", scene.sink).wait_until_ready()
    (room,) = budgets.rooms([budget])
    case = scene.proposed()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        BudgetPeriod.objects.filter(pk=room.period_id).update(reserved_minor=0)
        assert approve_in_a_process(scene.stage, case, dying="never") == 0
        wait_for("the claim to wait for the period", somebody_waits_for_a_lock)
    scene.rest(case)
    scene.wait_for_event(ControlEventKind.SERIALIZATION_RETRY)
    return case


def _budget(scene: Scene) -> int:
    return budgets.make(
        tenant_id=scene.stage.organisation.tenant.pk,
        span=BudgetSpan.DAY,
        currency="EUR",
        limit_minor=10**9,
        by="person:Adam Demo",
    ).pk


def restarted(scene: Scene, *, immediate: bool) -> Case:
    """While the answer is on its way back."""
    assert scene.server is not None
    worker = scene.stage.worker("a", scene.sink, gated=True, lease="20", call_timeout="15")
    worker.wait_until_ready()
    held = scene.sink.gate.hold("answer", scene.sink.request)
    case = scene.approved()
    assert held.reached.wait(PATIENCE), "nothing came to the gate"
    connection.close()
    scene.server.restart(immediate=immediate)
    held.released.set()
    scene.rest(case)
    return case


def broker_away(scene: Scene) -> Case:
    scene.stage.worker("a", scene.sink).wait_until_ready()
    with scene.stage.broker.away():
        case = scene.approved()
        scene.rest(case)
    scene.another_is_carried_out()
    return case


def messages_lost(scene: Scene) -> Case:
    case = scene.approved()
    scene.stage.broker.empty()
    scene.stage.worker("a", scene.sink).wait_until_ready()
    scene.rest(case)
    return case
