"""The demo as a new user starts it: a real `manage.py demo` in a folder of its own, on ports of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx
import psutil
import pytest

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 180.0  # seconds; cold, with everything else of the suite beside it
WELCOME = "Ctrl-C stops everything."
PROBED = ("set_config", "--tenant", "Halden Retail (demo)")


class Demo:
    """A folder with its ports, and the commands a user can give in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = _free_ports(2)
        kept = {
            name: value
            for name, value in os.environ.items()
            if name
            not in ("DATABASE_URL", "BROKER_DIR", "BROKER_URL", "SECRET_KEY", "DJANGO_SETTINGS_MODULE")
        }
        self.environment = {
            **kept,
            "VAR_DIR": str(folder),
            "WEB_PORT": str(self.ports[0]),
            "SANDBOX_PORT": str(self.ports[1]),
            "PYTHONUNBUFFERED": "1",
        }

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command that ends by itself."""
        return subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=REPOSITORY,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def run_told(self, *command: str) -> subprocess.CompletedProcess[str]:
        """The same in a shell that knows nothing of this demo but what its demo.env says."""
        ours = ("VAR_DIR", "WEB_PORT", "SANDBOX_PORT")
        script = '. "$0" && exec "$@"'
        return subprocess.run(
            ["/bin/sh", "-c", script, self.folder / "demo.env", sys.executable, "manage.py", *command],
            cwd=REPOSITORY,
            env={name: value for name, value in self.environment.items() if name not in ours},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def start(self) -> tuple[subprocess.Popen[str], str]:
        """`manage.py demo`, up to its welcome; returns what it said."""
        process = subprocess.Popen(
            [sys.executable, "manage.py", "demo"],
            cwd=REPOSITORY,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        return process, _read_until(process.stdout, WELCOME)

    def stop(self, process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> str:
        """Ctrl-C, or what a terminal that is closed sends; returns the rest of what it said."""
        process.send_signal(number)
        rest, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, rest
        return rest

    def handles(self) -> dict[str, Any]:
        """What demo.json says."""
        found: dict[str, Any] = json.loads((self.folder / "demo.json").read_text())
        return found

    def processes(self) -> list[str]:
        """Command lines of the living processes that work in this folder; a zombie is no process any more."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                    continue
                mine = process.environ().get("VAR_DIR") == str(self.folder) or process.cwd().startswith(
                    str(self.folder)
                )
            except psutil.Error:
                continue
            if mine:
                found.append(" ".join(process.cmdline()))
        return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    demo = Demo(tmp_path_factory.mktemp("demo").resolve())
    yield demo
    demo.run("reset")
    assert not (demo.folder / "postgres").exists()


@pytest.mark.timeout(900)
def test_the_demo_plays_the_example_serves_the_console_and_leaves_nothing_behind(demo: Demo) -> None:
    process, said = demo.start()
    try:
        assert "effects at the sink: 1" in said
        handles = demo.handles()
        assert (demo.folder / "demo.json").stat().st_mode & 0o077 == 0
        assert set(handles["users"]) == {"reviewer", "second_reviewer", "operator", "admin", "auditor"}
        assert "Sign in" in httpx.get(f"{handles['base_url']}/", follow_redirects=True).text
        own, other = (_cases(handles, key) for key in ("agent_key", "second_tenant_agent_key"))
        assert {each["reference"] for each in own} == {
            *("1836", "1837", "1838", "1839", "1844", "1851", "1852", "1855"),
            *("1860", "1861", "1862", "1863"),
        }
        assert other == []

        lost = demo.run("probe", *PROBED)
        assert "Nothing was sent. Set SINK_SANDBOX_PROBE_TOKEN" in lost.stderr
        assert "demo.env" in lost.stderr
        told = demo.run_told("probe", *PROBED)
        assert told.returncode == 0, told.stderr
        assert "holds     two at once have one effect" in told.stdout

        second = demo.run("demo")
        assert second.returncode == 1
        assert "already running" in second.stderr
        refused = demo.run("reset")
        assert refused.returncode == 1
        assert "already running" in refused.stderr
    finally:
        assert "make reset" in demo.stop(process)
    assert demo.processes() == []

    process, said = demo.start()  # warm: the tenants are kept, the example has a new one
    assert "effects at the sink: 1" in said
    assert demo.handles() == handles
    assert "make reset" in demo.stop(process, signal.SIGTERM)
    assert demo.processes() == []


@pytest.mark.timeout(900)
def test_the_example_runs_by_itself_and_its_last_line_is_the_count(demo: Demo) -> None:
    played = demo.run("example")
    assert played.returncode == 0, played.stderr
    assert played.stdout.splitlines()[-1] == "effects at the sink: 1"
    assert [token for token in ("token 481", "token 482") if token in played.stdout] == [
        "token 481",
        "token 482",
    ]
    assert demo.processes() == []


def test_a_busy_port_is_named_with_the_variable_that_chooses_another(demo: Demo) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = demo.run("demo", WEB_PORT=str(port))
    assert refused.returncode == 1
    assert f"Port {port}" in refused.stderr
    assert "WEB_PORT=" in refused.stderr
    assert demo.processes() == []


def test_settings_that_cannot_be_used_are_told_in_one_line(demo: Demo) -> None:
    refused = demo.run("demo", COUNTERSIGN_LEASE="10")
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "The settings cannot be used: COUNTERSIGN_DATABASE_TIMEOUT (10 s) must be below COUNTERSIGN_LEASE (10 s)."
    ]


def _cases(handles: dict[str, Any], key: str) -> list[Any]:
    answer = httpx.get(
        f"{handles['base_url']}/api/v1/cases", headers={"Authorization": f"Bearer {handles[key]}"}
    )
    found: list[Any] = answer.raise_for_status().json()["items"]
    return found


def _read_until(stream: IO[str], ending: str) -> str:
    said, deadline = "", time.monotonic() + PATIENCE
    for line in stream:
        said += line
        if ending in line:
            return said
        assert time.monotonic() < deadline, said
    raise AssertionError(f"The demo ended early:\n{said}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
