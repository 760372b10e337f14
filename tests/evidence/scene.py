"""What one row works with: a stage, one sink, the case that is watched, and when it has come to rest."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from celery import current_app

from accounts.actors import agent_actor
from approvals import cases, proposals
from approvals.models import Case
from approvals.proposals import Content
from config.demo import seed
from config.embedded.postgres import Server
from ledger import findings
from ledger.models import Attempt, ControlEvent, Operation
from ledger.states import SETTLED, ControlEventKind, OperationState
from tests.crashes.stage import TIMES as SHORTER
from tests.crashes.stage import Sink, Stage, wait_for
from tests.evidence.rows import Expected
from tests.evidence.sinks import AtSandbox

_FURTHER = 2
"""An outcome is at rest in *unknown* once so many further attempts could not tell either."""


TIMES = {
    **SHORTER,
    "COUNTERSIGN_LEASE": "4.0",
    "COUNTERSIGN_CALL_TIMEOUT": "3.5",
    "COUNTERSIGN_DATABASE_TIMEOUT": "2.0",
}
"""Longer than the crash tests': a worker that is merely slow, on a busy machine, must not be taken for a dead one."""


@dataclass
class Scene:
    """One sink on a stage of its own; ``ends`` is run when the row is over."""

    stage: Stage
    sink: Sink
    ends: ExitStack
    server: Server | None = None
    hook: Callable[[str], str] | None = None
    """Turns a tool's hook into an address that the sandbox reaches."""
    others: list[str] = field(default_factory=list)
    """Keys of effects that are not the watched case's."""

    def __post_init__(self) -> None:
        if isinstance(self.sink, AtSandbox):
            seed.tool(self.stage.organisation.tenant, self.sink.action, self.sink.version)

    def proposed(self, *, step: int = 1, reference: str = "1842", target: str = "order:88213") -> Case:
        facts = proposals.facts(reference=reference, action=self.sink.action, target=target, step=step)
        return cases.propose(
            actor=agent_actor(self.stage.organisation.agent), facts=facts, content=self.content()
        ).case

    def content(self) -> Content:
        return Content(parameters=self.sink.parameters(), expects={})

    def approved(self, **facts: Any) -> Case:
        case = self.proposed(**facts)
        self.stage.approve(case)
        return case

    def another_is_carried_out(self) -> None:
        """Proof that whoever has heard the messages so far is alive and has gone on."""
        other = self.approved(reference="1843", target="order:88214")
        self.others.append(self.operation(other).order.key)
        self.rest(other)

    def hint(self, key: str, fingerprint: str) -> None:
        """A message as a broker may deliver it, whenever it likes."""
        content = [{"key": key, "fingerprint": fingerprint}]
        current_app.send_task("workers.execute", args=[content], ignore_result=True)

    def operation(self, case: Case) -> Operation:
        """The newest of the case."""
        found = Operation.objects.select_related("order").filter(order__subject=case.pk)
        return found.latest("order_id")

    def attempts_ended(self, case: Case) -> int:
        return Attempt.objects.filter(
            operation_id=self.operation(case).order_id, ended_at__isnull=False
        ).count()

    def rest(self, case: Case) -> None:
        """Waits until the outcome is settled, or unknown and nothing that happens by itself changes that."""
        wait_for("an outcome", lambda: self.operation(case).state in _OUTCOMES)
        known = self.attempts_ended(case)
        wait_for(
            "the outcome to come to rest",
            lambda: self.operation(case).state in SETTLED or self.attempts_ended(case) >= known + _FURTHER,
        )

    def seen(self, case: Case) -> Expected:
        """Effects counted at the sink, and what the ledger says."""
        effects = [key for key in self.sink.effects() if key not in self.others]
        operation = Operation.objects.filter(order__subject=case.pk).order_by("order_id").last()
        state = operation.state if operation else Case.objects.get(pk=case.pk).state
        asks = state == OperationState.OUTCOME_UNKNOWN or bool(findings.disputed([case.pk]))
        return Expected(len(effects), state, asks)

    def wait_for_event(self, kind: ControlEventKind) -> None:
        wait_for(f"{kind} to be counted", lambda: ControlEvent.objects.filter(kind=kind).exists())


_OUTCOMES = (*SETTLED, OperationState.OUTCOME_UNKNOWN)
