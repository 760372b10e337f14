"""The worked example, on the real thing: case 1842, two workers, one refund.

A case is revised five times and approved at revision 7. The message comes twice. Worker A claims (revision 8,
token 481), its request commits at the provider, and A is stopped beyond its lease. B meets "in progress", takes
over with token 482, asks the provider by the same identity and records: executed, revision 9. A wakes; its
recording is refused, its receipt kept. Effects are counted at the provider, not in our own tables.
"""

import os
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from celery import current_app
from django.conf import settings
from django.db import transaction

from config.demo.clients import AgentClient, ReviewerClient
from config.demo.seed import Organisation, organisation
from ledger import clock, operations, tools
from ledger.models import Attempt, ControlEvent, Evidence, Operation, Resource
from ledger.operations import FingerprintConflict
from ledger.states import ControlEventKind

FENCE = 480
TARGET = "order:88213"
CHARGE = "ch_1842"
_PATIENCE = 30.0  # seconds for anything that another process has to do
_HANG = 2.0  # seconds the provider keeps A waiting after it has committed


class DidNotHold(AssertionError):
    """Something the product promises did not hold."""


@dataclass(slots=True)
class Example:
    """One run. ``say`` prints a line of the transcript; ``pid_of`` finds a worker's process by its node name."""

    say: Callable[[str], None]
    pid_of: Callable[[str], int]
    organisation: Organisation = field(init=False)
    agent: AgentClient = field(init=False)
    case: dict[str, Any] = field(init=False)
    etag: str = field(init=False)
    began: float = field(default_factory=time.monotonic)

    def run(self) -> int:
        """Plays the scene and returns the effects counted at the sink. Raises DidNotHold."""
        self._set_the_scene()
        self._propose_and_revise()
        self._approve()
        a = self._first_worker_commits_and_stalls()
        try:
            b = self._second_worker_takes_over(a)
        finally:
            os.kill(self.pid_of(a.worker), signal.SIGCONT)
        self._first_worker_wakes(a)
        self._every_door_refuses_another_amount()
        return self._count(a, b)

    # The scene, in order.

    def _set_the_scene(self) -> None:
        label = secrets.token_hex(4)
        self.organisation = organisation(
            f"Example of {clock.now():%H:%M:%S} (demo)",
            label=f"example-{label}",
            handles=("reviewer", "admin"),
        )
        operations.resource_named(tenant_id=self.organisation.tenant.pk, name=TARGET)
        Resource.objects.filter(tenant=self.organisation.tenant, name=TARGET).update(token=FENCE)
        self.agent = AgentClient(settings.BASE_URL, self.organisation.agent_key)
        self._tell(f"A fresh tenant. The fence of {TARGET} stands at {FENCE}.")

    def _propose_and_revise(self) -> None:
        answer = self.agent.post("/cases", {**_FACTS, **_content(12_500)})
        self._take(answer, httpx.codes.CREATED)
        amounts = (25_000, 50_000, 75_000, 100_000, 125_000)
        for amount in amounts:
            self._take(
                self.agent.post(f"/cases/{self.case['id']}/revisions", _content(amount), etag=self.etag),
                httpx.codes.CREATED,
            )
        self._hold(
            "the case is pending at revision 6", (self.case["state"], self.case["revision"]) == ("pending", 6)
        )
        self._tell(
            f"The agent proposes case 1842 and revises it five times. Pending, revision 6: {self.case['summary']}."
        )
        again = self.agent.post("/cases", {**_FACTS, **_content(125_000)})
        self._hold("the same proposal again is answered, not repeated", again.status_code == httpx.codes.OK)
        self._tell("It sends the same proposal again and gets the same case: nothing new is opened.")

    def _approve(self) -> None:
        person = self.organisation.people["reviewer"]
        reviewer = ReviewerClient(settings.BASE_URL, person)
        self._fault("hang_after_commit", seconds=_HANG)
        answer = reviewer.decide(
            self.case["id"], etag=self.etag, digest=self.case["digest"], verdict="approve"
        )
        self._hold("the approval is recorded", answer.is_success)
        approved = answer.json()
        self._hold("the decision names revision 6", approved["decision"]["revision"] == 6)
        self._hold("the approval made revision 7", approved["operation"]["approved_revision"] == 7)
        self._tell(
            f"{person.member.user.name} approves revision 6. Approved, revision 7: the operation is written."
        )
        self._tell(f"Its idempotency key is {self._operation().order.key}.")

    def _first_worker_commits_and_stalls(self) -> Attempt:
        attempt: Attempt = self._wait_for("a worker to claim", lambda: self._attempts().first())
        self._hold("the claim's token is 481", attempt.token == FENCE + 1)
        self._wait_for("the refund to commit at the provider", self._effects)
        os.kill(self.pid_of(attempt.worker), signal.SIGSTOP)
        self._read_case("executing", 8)
        self._tell(
            f"Worker A ({attempt.worker}) claims: executing, revision 8, token {attempt.token}. It sends the refund."
        )
        self._tell("The provider has committed it. Before A hears of it, A is stopped (SIGSTOP).")
        return attempt

    def _second_worker_takes_over(self, a: Attempt) -> Attempt:
        order = self._operation().order
        _ring(order.key, order.fingerprint)
        met = self._wait_for(
            "worker B to meet it in progress",
            lambda: self._events(ControlEventKind.REPLAY, source="queue:").last(),
        )
        self._hold("B, not A, met it", a.worker not in met.source)
        self._tell(
            "The same message arrives again, at worker B. B meets the operation in progress and sends nothing."
        )
        b: Attempt = self._wait_for(
            "the take-over", lambda: self._attempts().filter(number=2, outcome="committed").first()
        )
        self._hold("B is another worker", b.worker != a.worker)
        self._hold("B's token is 482", b.token == FENCE + 2)
        self._hold("B looked up and sent nothing", (b.lookups, b.sent) == (1, False))
        self._read_case("executed", 9)
        self._tell(
            f"A's lease ends. B ({b.worker}) takes over with token {b.token} and asks the provider by the same key."
        )
        self._tell(f"It finds {self._operation().reference} and records it: executed, revision 9.")
        return b

    def _first_worker_wakes(self, a: Attempt) -> None:
        late = self._wait_for(
            "A's receipt", lambda: Evidence.objects.filter(operation=self._operation()).first()
        )
        self._hold("A reported under its old token", (late.worker, late.token) == (a.worker, a.token))
        self._hold("A's receipt names the same refund", late.reference == self._operation().reference)
        self._wait_for(
            "the refused write to be counted", lambda: self._events(ControlEventKind.FENCED_WRITE).first()
        )
        self._read_case("executed", 9)
        self._tell(
            f"A wakes and reports {late.reference} under token {late.token}: recording refused, receipt kept."
        )

    def _every_door_refuses_another_amount(self) -> None:
        operation = self._operation()
        answer = self.agent.post("/cases", {**_FACTS, **_content(990_00)})
        self._hold("the API refuses another amount", answer.status_code == httpx.codes.CONFLICT)
        _ring(operation.order.key, "0" * 64)
        self._wait_for(
            "the queue's contradiction to be counted",
            lambda: self._events(ControlEventKind.FINGERPRINT_CONFLICT, source="queue:").first(),
        )
        self._hold("the ledger refuses it", self._ledger_refuses_other_content(operation))
        self._hold("the provider refuses it", self._provider_refuses(operation.order.key))
        self._tell(
            "Another amount under the same identity is a conflict at every door: API, queue, ledger, provider."
        )

    def _count(self, a: Attempt, b: Attempt) -> int:
        effects = self._effects()
        self._hold("two attempts, one send", (a.number, b.number, self._attempts().count()) == (1, 2, 2))
        self._hold(
            "the one effect carries the operation's key",
            [each["idempotency_key"] for each in effects] == [self._operation().order.key],
        )
        self._tell(f"The ledger says: 2 attempts, 1 send, committed as {self._operation().reference}.")
        return len(effects)

    # What the scene asks of the ledger, the provider and the API.

    def _operation(self) -> Operation:
        return Operation.objects.select_related("order").get(order__subject=int(self.case["id"]))

    def _attempts(self) -> Any:
        return Attempt.objects.filter(operation__order__subject=int(self.case["id"])).order_by("number")

    def _events(self, kind: ControlEventKind, *, source: str = "") -> Any:
        """The case's control events of this kind, oldest first; ``source`` is how their source begins."""
        of_the_case = ControlEvent.objects.filter(
            subject=int(self.case["id"]), kind=kind, source__startswith=source
        )
        return of_the_case.order_by("id")

    def _effects(self) -> list[dict[str, Any]]:
        """The provider's own list, for this tenant's keys: the truth to count."""
        listed: list[dict[str, Any]] = httpx.get(
            f"{settings.SANDBOX_URL}/_sandbox/effects", timeout=_PATIENCE
        ).json()
        return [each for each in listed if each["idempotency_key"] == self._operation().order.key]

    def _fault(self, name: str, *, seconds: float) -> None:
        httpx.post(
            f"{settings.SANDBOX_URL}/_sandbox/faults",
            json={"fault": name, "times": 1, "seconds": seconds},
            timeout=_PATIENCE,
        ).raise_for_status()

    def _ledger_refuses_other_content(self, operation: Operation) -> bool:
        order = operation.order
        rendered = tools.render(
            order.tool_version,
            facts={"target": TARGET},
            parameters={"payment": CHARGE, "amount_minor": 1, "currency": "EUR"},
        )
        try:
            with transaction.atomic():
                operations.write(
                    tenant_id=order.tenant_id,
                    key=order.key,
                    action_key=operation.action_key,
                    subject=order.subject,
                    approved_revision=order.approved_revision,
                    fingerprint="0" * 64,
                    digest=order.digest,
                    version=order.tool_version,
                    rendered=rendered,
                    expected_version=None,
                )
        except FingerprintConflict:
            return True
        return False

    def _provider_refuses(self, key: str) -> bool:
        answer = httpx.post(
            f"{settings.SANDBOX_URL}/v1/refunds",
            data={"charge": CHARGE, "amount": "1", "currency": "eur"},
            headers={"Authorization": "Bearer sk_sandbox_demo", "Idempotency-Key": key},
            timeout=_PATIENCE,
        )
        return (
            answer.status_code == httpx.codes.BAD_REQUEST
            and answer.json()["error"]["type"] == "idempotency_error"
        )

    def _read_case(self, state: str, revision: int) -> None:
        self._take(self.agent.get(f"/cases/{self.case['id']}"), httpx.codes.OK)
        found = (self.case["state"], self.case["revision"])
        self._hold(f"the case is {state} at revision {revision}, not {found}", found == (state, revision))

    def _take(self, answer: httpx.Response, status: int) -> None:
        if answer.status_code != status:
            raise DidNotHold(f"The API answered {answer.status_code}, not {status}: {answer.text[:400]}")
        self.case, self.etag = answer.json(), answer.headers["ETag"]

    def _wait_for(self, what: str, look: Callable[[], Any]) -> Any:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            if found := look():
                return found
            time.sleep(0.02)
        raise DidNotHold(f"{_PATIENCE:g} seconds were not enough for {what}.")

    def _hold(self, promise: str, kept: bool) -> None:
        if not kept:
            raise DidNotHold(f"This did not hold: {promise}.")

    def _tell(self, line: str) -> None:
        self.say(f"{time.monotonic() - self.began:6.2f} s  {line}")


_FACTS = {"reference": "1842", "action": "refund", "target": TARGET, "step": 1}


def _content(amount_minor: int) -> dict[str, Any]:
    return {
        "parameters": {"payment": CHARGE, "amount_minor": amount_minor, "currency": "EUR"},
        "rationale": "Parcel lost in transit.",
        "evidence": [
            {
                "statement": "Carrier reports the parcel lost",
                "source": "carrier",
                "fetched_at": "2026-11-30T10:39:00Z",
            }
        ],
    }


def _ring(key: str, fingerprint: str) -> None:
    """A message as the broker may deliver it once more, or as anybody with access to it may forge it."""
    current_app.send_task(
        "workers.execute", args=[[{"key": key, "fingerprint": fingerprint}]], ignore_result=True
    )


def pid_from(directory: Path) -> Callable[[str], int]:
    """Finds a worker's process by its node name, from the supervisor's files."""
    return lambda node: int((directory / "run" / f"{node.split('@')[0]}.pid").read_text())
