"""A stage for crash tests: two sinks that can be counted, real worker processes, and the acts of agent and reviewer."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypedDict

import httpx
import psutil
import psycopg
from celery import current_app
from django.db import connection

from accounts.actors import agent_actor, person_actor
from approvals import cases, decisions, proposals
from approvals.decisions import Word
from approvals.models import Case
from approvals.proposals import Content
from approvals.states import Verdict
from approvals.tags import tag_of
from config.demo.seed import Organisation, organisation
from ledger.models import Attempt, Operation
from ledger.states import OperationState
from tests.crashes import nursery
from tests.crashes.doorbell import Doorbell
from tests.crashes.gate import Gate, Hold, Side

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds: how long a test waits for what must come before it fails
LEASE = 1.0
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO")

TIMES = {
    "COUNTERSIGN_LEASE": str(LEASE),
    "COUNTERSIGN_CALL_TIMEOUT": "0.9",
    "COUNTERSIGN_SWEEP": "0.1",
    "COUNTERSIGN_BACKOFF": "0.2",
    "COUNTERSIGN_BACKOFF_MOST": "0.5",
    "COUNTERSIGN_DATABASE_TIMEOUT": "0.8",
}


class Times(TypedDict, total=False):
    """Of a worker, in seconds."""

    lease: str
    call_timeout: str
    database_timeout: str


PATIENT: Times = {"lease": "60", "call_timeout": "30", "database_timeout": "20"}
"""For a worker that nothing happens to: however slow the machine, it must not be taken for a dead one."""


class Sink(Protocol):
    """Where effects become real, and are counted."""

    name: str
    action: str
    request: bytes
    """What marks the request on the wire."""
    gate: Gate

    def parameters(self) -> dict[str, Any]:
        """Of a proposal to this sink."""

    def environment(self, *, gated: bool) -> dict[str, str]:
        """What tells a worker where the sink is."""

    def effects(self) -> list[str]:
        """The idempotency key of every effect there is, counted at the sink."""


@dataclass
class Provider:
    """The sandbox provider."""

    url: str
    gate: Gate
    name: str = "provider_key"
    action: str = "refund"
    request: bytes = b"POST /v1/refunds"
    charge: str = field(default_factory=lambda: f"ch_{os.urandom(6).hex()}")

    def parameters(self) -> dict[str, Any]:
        return {"payment": self.charge, "amount_minor": 125_000, "currency": "EUR"}

    def environment(self, *, gated: bool) -> dict[str, str]:
        return {
            "SANDBOX_URL": f"http://127.0.0.1:{self.gate.port}" if gated else self.url,
            "STRIPE_API_KEY": "",
        }

    def effects(self) -> list[str]:
        listed = httpx.get(
            f"{self.url}/_sandbox/effects", params={"charge": self.charge}, timeout=PATIENCE
        ).json()
        return [each["idempotency_key"] for each in listed]

    def fault(self, name: str, **fields: Any) -> None:
        """Orders a fault for this test's charge."""
        body = {"fault": name, "charge": self.charge, **fields}
        httpx.post(f"{self.url}/_sandbox/faults", json=body, timeout=PATIENCE).raise_for_status()


@dataclass
class OwnLedger:
    """A database of one's own."""

    url: str
    gated_url: str
    gate: Gate
    name: str = "owned_write"
    action: str = "ledger_refund"
    request: bytes = b"countersign.apply"

    def parameters(self) -> dict[str, Any]:
        return {"amount_minor": 125_000, "currency": "EUR"}

    def environment(self, *, gated: bool) -> dict[str, str]:
        return {"REFUND_LEDGER_URL": self.gated_url if gated else self.url}

    def effects(self) -> list[str]:
        with psycopg.connect(self.url) as own:
            return [row[0] for row in own.execute("SELECT key FROM countersign.refund ORDER BY id")]


class WorkerProcess:
    """One Celery worker, as in production but for its times."""

    def __init__(self, name: str, environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self._process = nursery.start(
            ["-A", "config", "worker", "-P", "threads", "-c", "2", "-n", f"{name}@test", *QUIET],
            environment,
            log,
        )

    def wait_until_ready(self) -> None:
        wait_for(
            f"{self.name} to look for work",
            lambda: self.log.exists() and "is looking for due operations" in self.log.read_text(),
        )

    def freeze(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    @property
    def is_stopped(self) -> bool:
        """Whether the kernel has stopped it."""
        return bool(psutil.Process(self._pid).status() == psutil.STATUS_STOPPED)

    def thaw(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def terminate(self) -> None:
        """A warm shutdown."""
        self._process.terminate()
        self._process.join(PATIENCE)

    @property
    def _pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid


class Parked(NamedTuple):
    """A first worker at the gate with the case's request, its successor frozen."""

    first: WorkerProcess
    successor: WorkerProcess
    case: Case
    held: Hold


class ParkedTogether(NamedTuple):
    """The same with many cases in one request."""

    first: WorkerProcess
    successor: WorkerProcess
    cases: list[Case]
    held: Hold


@dataclass
class Stage:
    """What one test works with."""

    folder: Path
    database: str
    broker: Doorbell
    organisation: Organisation = field(init=False)
    workers: list[WorkerProcess] = field(default_factory=list)
    usual: Mapping[str, str] = field(default_factory=lambda: TIMES)
    """The workers' times, as the environment says them."""
    patient: Times = field(default_factory=lambda: PATIENT)

    def __post_init__(self) -> None:
        self.organisation = organisation("Crash test", label=os.urandom(4).hex())

    # Workers.

    def worker(
        self, name: str, sink: Sink, *, gated: bool = False, stops_before_it_sends: bool = False, **times: str
    ) -> WorkerProcess:
        """Starts a worker; call ``wait_until_ready`` when it is needed."""
        environment = {
            **self.usual,
            **{f"COUNTERSIGN_{each.upper()}": value for each, value in times.items()},
            **sink.environment(gated=gated),
            "DATABASE_URL": self.database,
            **self.broker.environment(),
            "VAR_DIR": str(self.folder),
            **({nursery.STOPS: "1"} if stops_before_it_sends else {}),
        }
        started = WorkerProcess(name, environment, self.folder / f"{name}.log")
        self.workers.append(started)
        return started

    def parked(self, sink: Sink, side: Side, *, call_timeout: str = "30") -> Parked:
        """Brings a first worker to the gate: before the effect (``request``), or after it (``answer``).

        ``call_timeout``: seconds for which its call may be held there; what it waits for later has as long.
        """
        times: Times = {"call_timeout": call_timeout} if self.patient else {}
        first, successor = self.worker("a", sink, gated=True, **times), self.worker("b", sink, **self.patient)
        successor.wait_until_ready()
        successor.freeze()
        first.wait_until_ready()
        held = sink.gate.hold(side, sink.request)
        case = self.approved(sink)
        assert held.reached.wait(PATIENCE), "nothing came to the gate"
        if side == "answer":
            wait_for("the effect", sink.effects)
        return Parked(first, successor, case, held)

    def parked_together(self, sink: OwnLedger, side: Side, *, many: int) -> ParkedTogether:
        """Brings a first worker to the gate with so many cases, which it finds due together when it starts."""
        successor = self.worker("b", sink, **self.patient)
        successor.wait_until_ready()
        successor.freeze()
        held = sink.gate.hold(side, sink.request)
        found = [self.approved(sink, reference=f"{each}", target=f"order:{each}") for each in range(many)]
        first = self.worker("a", sink, gated=True, call_timeout="30")
        assert held.reached.wait(PATIENCE), "nothing came to the gate"
        assert all(self.operation(case).state == OperationState.STARTED for case in found)
        assert len(sink.effects()) == (many if side == "answer" else 0), (
            "not all are in the request that is held"
        )
        return ParkedTogether(first, successor, found, held)

    def end(self) -> None:
        for each in self.workers:
            each.kill()

    # Acts.

    def proposed(self, sink: Sink, *, reference: str = "1842", target: str = "order:88213") -> Case:
        facts = proposals.facts(reference=reference, action=sink.action, target=target, step=1)
        content = Content(parameters=sink.parameters(), expects={})
        return cases.propose(actor=agent_actor(self.organisation.agent), facts=facts, content=content).case

    def approve(self, case: Case) -> Operation:
        reviewer = person_actor(self.organisation.people["reviewer"].member)
        word = Word(Verdict.APPROVE, case.proposal.digest)
        decisions.decide(actor=reviewer, case_id=case.pk, seen=tag_of(case), word=word)
        return self.operation(case)

    def approved(self, sink: Sink, **facts: str) -> Case:
        case = self.proposed(sink, **facts)
        self.approve(case)
        return case

    def ring(self, case: Case) -> None:
        """The message once more, as a broker may deliver it."""
        order = self.operation(case).order
        current_app.send_task(
            "workers.execute",
            args=[[{"key": order.key, "fingerprint": order.fingerprint}]],
            ignore_result=True,
        )

    # What is known.

    def operation(self, case: Case) -> Operation:
        return Operation.objects.select_related("order", "resource").get(order__subject=case.pk)

    def attempts(self, case: Case) -> list[Attempt]:
        return list(Attempt.objects.filter(operation__order__subject=case.pk).order_by("number"))

    def wait_for_state(self, case: Case, *states: OperationState) -> Operation:
        wait_for(f"the operation to be {states}", lambda: self.operation(case).state in states)
        return self.operation(case)

    def wait_for_attempt(self, case: Case, number: int = 1) -> None:
        wait_for(f"attempt {number}", lambda: len(self.attempts(case)) >= number)

    def assert_happened_once(self, case: Case, sink: Sink) -> None:
        """One effect at the sink, under this operation's key, and both machines say so."""
        operation = self.operation(case)
        assert sink.effects() == [operation.order.key]
        assert operation.state == OperationState.COMMITTED
        assert Case.objects.get(pk=case.pk).state == "executed"
        assert operation.resource.holder_id is None
        assert operation.resource.version == 1

    def assert_each_happened_once(self, cases: list[Case], sink: Sink) -> None:
        """One effect under each operation's key and no other, and both machines say so."""
        operations = [self.operation(case) for case in cases]
        assert sorted(sink.effects()) == sorted(each.order.key for each in operations)
        assert {each.state for each in operations} == {OperationState.COMMITTED}
        assert {Case.objects.get(pk=case.pk).state for case in cases} == {"executed"}
        assert {(each.resource.holder_id, each.resource.version) for each in operations} == {(None, 1)}


APPROVE_AND_DIE = """
import os, signal, sys
import django
django.setup()
from accounts.actors import person_actor
from accounts.models import Member
from approvals import decisions
from approvals.models import Case
from approvals.tags import tag_of
from django.db import transaction

case = Case.objects.select_related("proposal").get(pk=int(sys.argv[1]))
word = decisions.Word(decisions.Verdict.APPROVE, case.proposal.digest)
with transaction.atomic():
    if sys.argv[3] == "after":  # the first thing after the commit, before the doorbell
        transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
    reviewer = person_actor(Member.objects.get(pk=int(sys.argv[2])))
    decisions.decide(actor=reviewer, case_id=case.pk, seen=tag_of(case), word=word)
    if sys.argv[3] == "before":  # everything written, nothing committed
        os.kill(os.getpid(), signal.SIGKILL)
"""


def approve_in_a_process(stage: Stage, case: Case, *, dying: str) -> int:
    """Approves in a process of its own, which is killed ``before`` the commit, ``after`` it or ``never``."""
    reviewer = stage.organisation.people["reviewer"].member.pk
    return subprocess.run(
        [sys.executable, "-c", APPROVE_AND_DIE, str(case.pk), str(reviewer), dying],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DATABASE_URL": stage.database,
            **stage.broker.environment(),
            "DJANGO_SETTINGS_MODULE": "config.settings",
        },
        check=False,
    ).returncode


def wait_for(what: str, look: Callable[[], object]) -> None:
    """Returns once it is so; fails where it is not in time."""
    deadline = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < deadline, f"{PATIENCE:g} seconds were not enough for {what}"
        time.sleep(0.02)


def somebody_waits_for_a_lock() -> bool:
    """Whether another session of this database is seen waiting."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])
