"""Protections taken out, one by one, in copies that exist only here: what they prevent must then be seen to happen."""

from django.db import connection, transaction

from accounts.actors import agent_actor, person_actor
from approvals import cases, execution
from approvals.models import Case
from approvals.tags import tag_of
from ledger.claims import Grant
from ledger.outcomes import Report
from ledger.picks import QUERIES
from ledger.states import AttemptOutcome, OperationState
from tests import worlds
from tests.crashes.gate import Hold
from tests.crashes.stage import PATIENCE, wait_for
from tests.evidence.scene import Scene
from tests.evidence.sinks import faults_of
from workers import claims, outcomes

_LAG = 60.0
"""Seconds for which the sink's records do not show what has happened."""

# The own ledger's schema.


def keyless(schema: str) -> str:
    """It applies a key that it knows once more; its fence is as it was."""
    known = _changed(
        schema, "SELECT * INTO known FROM countersign.effect e WHERE e.key = keys[i];", "known := NULL;"
    )
    last = "tokens[i], apply.reference)"
    return _changed(known, f"{last};", f"{last} ON CONFLICT DO NOTHING;")


def fenceless(schema: str) -> str:
    """As ``keyless``, and whoever has seen a higher token lets a lower one in."""
    return _changed(keyless(schema), "ELSIF held > tokens[i] THEN", "ELSIF false THEN")


def _changed(text: str, old: str, new: str) -> str:
    """The first place only: that of ``apply``."""
    assert old in text, f"the schema no longer says {old!r}"
    return text.replace(old, new, 1)


# The recording.


def stale_refusal(scene: Scene) -> Case:
    """A worker that was succeeded says that nothing happened, while its successor's effect has: it is not believed."""
    case, grant, held = _effect_on_the_wire(scene)
    outcomes.record([_refusal(grant)])
    held.released.set()
    scene.rest(case)
    return case


def stale_refusal_believed(scene: Scene) -> Case:
    """The same, recorded without the token condition: the case fails, is approved anew, and it happens again."""
    case, grant, held = _effect_on_the_wire(scene)
    _record_without_token(_refusal(grant))
    faults_of(scene.sink)("list_lag", seconds=_LAG)
    agent = agent_actor(scene.stage.organisation.agent)
    failed = Case.objects.select_related("proposal").get(pk=case.pk)
    again = cases.revise(actor=agent, case_id=case.pk, seen=tag_of(failed), content=scene.content()).case
    scene.stage.worker("c", scene.sink).wait_until_ready()
    worlds.approve(again, person_actor(scene.stage.organisation.people["reviewer"].member))
    wait_for("a second effect", lambda: len(scene.sink.effects()) > 1)
    scene.rest(case)
    held.released.set()
    return case


def _effect_on_the_wire(scene: Scene) -> tuple[Case, Grant, Hold]:
    """A first grant whose worker fell silent before it sent; its successor's answer is held."""
    case = scene.approved()
    (grant,) = claims.claim(worker="stale@test", most=50, after=0, lease=0.0).grants
    successor = scene.stage.worker("b", scene.sink, gated=True, lease="20", call_timeout="15")
    held = scene.sink.gate.hold("answer", scene.sink.request)
    successor.wait_until_ready()
    assert held.reached.wait(PATIENCE), "nothing came to the gate"
    wait_for("the effect", scene.sink.effects)
    return case, grant, held


def _refusal(grant: Grant) -> Report:
    return worlds.report(grant, AttemptOutcome.REFUSED, worker="stale@test")


def _record_without_token(report: Report) -> None:
    """A copy of the product's own statement, but for its token condition."""
    condition = " AND o.token = report.token\n"
    statement = dict(QUERIES)["record_operations"]
    assert condition in statement, "the statement no longer has its token condition where it was"
    with transaction.atomic():
        settled = {report.subject: (OperationState(report.state), report.reason or "")}
        execution.settle(settled, worker=report.worker)
        with connection.cursor() as cursor:
            cursor.execute(
                statement.replace(condition, "\n", 1),
                {
                    "orders": [report.order_id],
                    "tokens": [report.token],
                    "states": [report.state.value],
                    "references": [None],
                    "reasons": [report.reason],
                    "waits": [None],
                    "outcomes": [report.outcome.value],
                    "sent": [report.sent],
                    "lookups": [0],
                    "stored": [False],
                    "receipts": [None],
                    "notes": [report.note],
                },
            )
            assert cursor.rowcount == 1
