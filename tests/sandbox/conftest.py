"""A real sandbox in a process of its own, spoken to as a stranger would: by the official SDK and by HTTP."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import requests
import stripe

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds: how long a test waits for what must come before it fails


class SandboxProcess:
    """One run of `python -m sandbox`; the context manager sees to its end."""

    def __init__(self, database: Path, *options: str, port: int = 0) -> None:
        place = ["--port", str(port), "--database", str(database)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sandbox", *place, *options],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self._output = self.process.stdout
        first_line = self._output.readline()
        match = re.fullmatch(r"sandbox listening on (http://127\.0\.0\.1:(\d+))\n", first_line)
        if match is None:
            self.end(signal.SIGKILL)
            raise AssertionError(f"unexpected first line: {first_line!r}")
        self.url, self.port = match[1], int(match[2])
        self.mail_port = self._mail_port() if "--mail-port" in options else None
        self.http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": "Bearer sk_sandbox_tests"},
            timeout=PATIENCE,
            verify=False,  # there is no TLS here, and reading the certificates costs more than a test
        )
        self._session = requests.Session()
        self.refunds = stripe.StripeClient(
            "sk_sandbox_tests",
            base_addresses={"api": self.url},
            max_network_retries=0,
            http_client=stripe.RequestsClient(timeout=PATIENCE, session=self._session),
        ).v1.refunds

    def _mail_port(self) -> int:
        match = re.fullmatch(r"sandbox takes mail at 127\.0\.0\.1:(\d+)\n", self._output.readline())
        assert match is not None
        return int(match[1])

    def __enter__(self) -> "SandboxProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)
        self.http.close()
        self._session.close()

    def end(self, signum: signal.Signals) -> int:
        """End the process, if it has not ended, and answer its exit code; it must have had nothing to say."""
        self.process.send_signal(signum)
        self.process.wait()
        if self._output.closed:
            return self.process.returncode
        with self._output:
            assert self._output.read() == ""
        return self.process.returncode

    def create(self, *, key: str | None = None, **fields: object) -> httpx.Response:
        """One create on the wire; `amount` is 1200 unless said otherwise."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.http.post("/v1/refunds", data={"amount": 1200, **fields}, headers=headers)

    def page(self, **parameters: str | int) -> Any:
        response = self.http.get("/v1/refunds", params=parameters)
        assert response.status_code == 200, response.text
        return response.json()

    def effects(self, **filters: str) -> Any:
        return self.http.get("/_sandbox/effects", params=filters).raise_for_status().json()

    def requests(self, **filters: str) -> Any:
        return self.http.get("/_sandbox/requests", params=filters).raise_for_status().json()

    def order_fault(self, fault: str, **fields: object) -> None:
        self.http.post("/_sandbox/faults", json={"fault": fault, **fields}).raise_for_status()

    def pending_faults(self, charge: str) -> list[Any]:
        pending = self.http.get("/_sandbox/faults").raise_for_status().json()
        return [fault for fault in pending if fault["charge"] == charge]

    def release(self) -> Any:
        return self.http.delete("/_sandbox/faults").raise_for_status().json()


@pytest.fixture(scope="session")
def shared_sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    database = tmp_path_factory.mktemp("sandbox") / "sandbox.sqlite3"
    with SandboxProcess(database) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox_process(shared_sandbox: SandboxProcess) -> SandboxProcess:
    """The sandbox most tests share; each keeps to a charge of its own."""
    shared_sandbox.release()
    return shared_sandbox


@pytest.fixture
def start_sandbox(tmp_path: Path) -> Iterator[Callable[..., SandboxProcess]]:
    """Start a sandbox of the test's own, on one database however often it is restarted."""
    with ExitStack() as running:

        def start(*options: str, port: int = 0) -> SandboxProcess:
            return running.enter_context(SandboxProcess(tmp_path / "own.sqlite3", *options, port=port))

        yield start


@pytest.fixture
def charge() -> str:
    return f"ch_{uuid4().hex}"


def eventually(condition: Callable[[], object]) -> None:
    """Return once the condition holds; fail where it does not in time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)
