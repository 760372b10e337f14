"""Messages twice and out of time, and acts in another order than they were meant in."""

from django.db import connection

from accounts.actors import agent_actor, person_actor
from approvals import cases, decisions, retention
from approvals.decisions import Word
from approvals.errors import Refusal
from approvals.models import Case
from approvals.states import Verdict
from approvals.tags import tag_of
from ledger import identity
from ledger.models import Evidence
from ledger.outcomes import Report
from ledger.states import AttemptOutcome, ControlEventKind, OperationState
from tests.evidence.scene import Scene
from tests.worlds import triggers_off
from workers import outcomes

_LONG_AGO = "500 days"


def twice_at_once(scene: Scene) -> Case:
    workers = [scene.stage.worker(name, scene.sink) for name in ("a", "b")]
    for worker in workers:
        worker.wait_until_ready()
        worker.freeze()
    case = scene.approved()
    scene.stage.ring(case)
    for worker in workers:
        worker.thaw()
    scene.rest(case)
    return case


def again_when_final(scene: Scene) -> Case:
    scene.stage.worker("a", scene.sink).wait_until_ready()
    case = scene.approved()
    scene.rest(case)
    known = scene.attempts_ended(case)
    for _ in range(2):
        scene.stage.ring(case)
    scene.wait_for_event(ControlEventKind.REPLAY)
    scene.another_is_carried_out()
    assert len(scene.stage.attempts(case)) == known
    return case


def again_after_retention(scene: Scene) -> Case:
    """Its content is gone. The message, and the proposal, find what is left of it."""
    scene.stage.worker("a", scene.sink).wait_until_ready()
    case = scene.approved()
    scene.rest(case)
    known = scene.attempts_ended(case)
    _age(case)
    assert retention.prune_due() == 1
    scene.stage.ring(case)
    scene.wait_for_event(ControlEventKind.REPLAY)
    assert scene.proposed().pk == case.pk
    scene.another_is_carried_out()
    assert len(scene.stage.attempts(case)) == known
    return case


def _age(case: Case) -> None:
    """Everything about the case happened so much earlier."""
    with triggers_off(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_operation SET settled_at = settled_at - %s::interval"
            " WHERE order_id IN (SELECT id FROM ledger_order WHERE subject = %s)",
            [_LONG_AGO, case.pk],
        )
        cursor.execute(
            "UPDATE approvals_revision SET at = at - %s::interval WHERE case_id = %s", [_LONG_AGO, case.pk]
        )


def message_before_approval(scene: Scene) -> Case:
    """The doorbell names an intent that nobody has approved yet."""
    scene.stage.worker("a", scene.sink).wait_until_ready()
    case = scene.proposed()
    key = identity.idempotency_key(
        tenant=case.tenant_id,
        reference=case.reference,
        action=case.action,
        target=case.target,
        step=case.step,
        approved_revision=case.revision + 1,
    )
    scene.hint(key, case.proposal.fingerprint)
    scene.another_is_carried_out()
    assert key not in scene.sink.effects()
    assert scene.stage.approve(case).order.key == key
    scene.rest(case)
    return case


def record_before_claim(scene: Scene) -> Case:
    """A report under a token that was never given is kept, and decides nothing."""
    case = scene.approved()
    operation = scene.operation(case)
    report = Report(
        order_id=operation.order_id,
        tenant_id=operation.order.tenant_id,
        key=operation.order.key,
        subject=case.pk,
        tool=scene.sink.action,
        token=1,
        worker="nobody@test",
        outcome=AttemptOutcome.REFUSED,
        state=OperationState.FAILED_BEFORE_COMMIT,
        wait=None,
        sent=True,
        reason="declined",
    )
    outcomes.record([report])
    assert scene.operation(case).state == OperationState.NOT_STARTED
    assert Evidence.objects.filter(operation_id=operation.order_id).count() == 1
    scene.stage.worker("a", scene.sink).wait_until_ready()
    scene.rest(case)
    return case


def approve_after_withdraw(scene: Scene) -> Case:
    """With what the reviewer saw before, and with what stands there now."""
    scene.stage.worker("a", scene.sink).wait_until_ready()
    case = scene.proposed()
    seen = tag_of(case)
    cases.withdraw(actor=agent_actor(scene.stage.organisation.agent), case_id=case.pk, seen=seen)
    withdrawn = Case.objects.select_related("proposal").get(pk=case.pk)
    reviewer = person_actor(scene.stage.organisation.people["reviewer"].member)
    word = Word(Verdict.APPROVE, case.proposal.digest)
    for tag in (seen, tag_of(withdrawn)):
        try:
            decisions.decide(actor=reviewer, case_id=case.pk, seen=tag, word=word)
        except Refusal:
            continue
        raise AssertionError("a withdrawn case was approved")
    scene.another_is_carried_out()
    return case


def later_step_first(scene: Scene) -> Case:
    """Each step is an action of its own: one effect each, in whatever order they are approved."""
    scene.stage.worker("a", scene.sink).wait_until_ready()
    first, second = scene.proposed(step=1), scene.proposed(step=2)
    scene.stage.approve(second)
    scene.rest(second)
    key = scene.operation(second).order.key
    scene.stage.approve(first)
    scene.rest(first)
    assert scene.sink.effects().count(key) == 1
    scene.others.append(key)
    return first
