"""Child processes, each with a log and a group of its own, none of which outlives its parent.

Start them from the main thread only: on Linux the kernel ends a child when the *thread* that
started it ends.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from config.embedded.errors import NotReady

TETHER = Path(__file__).with_name("tether.py")
POLL = 0.02  # seconds between two looks at a process
LAST_MOMENT = 2.0  # seconds for what SIGKILL has ended to be gone
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def at_once() -> bool:
    """The readiness of a program that needs no waiting for."""
    return True


def nothing_to_prepare() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to run, how to see that it is ready, and how to end it. Times are in seconds."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to our own."""
    directory: Path | None = None
    user: str = ""
    """The system user to run as; only root may name one."""
    prepare: Callable[[], None] = nothing_to_prepare
    """Done before every start, also after a crash."""
    ready: Callable[[], bool] = at_once
    ready_within: float = 120.0
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 5.0
    """From the stop signal to SIGKILL."""
    orphan_signal: signal.Signals = signal.SIGKILL
    """What the kernel sends when we die first; SIGKILL also ends a process that is stopped."""


class Process:
    """One run of a program, whose `prepare` has been called."""

    def __init__(self, program: Program, log: Path, *, fresh_log: bool = True) -> None:
        self.program = program
        self.log = log
        self.started_at = time.monotonic()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb" if fresh_log else "ab") as output:
            self._popen = self._spawn(output)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs, negative when a signal ended it. Reaps: no zombie counts as running."""
        return self._popen.poll()

    def is_running(self) -> bool:
        return self.exit_code is None

    def wait_until_ready(self) -> None:
        """Raises NotReady, with the end of the log, if it ends or its time runs out first."""
        deadline = self.started_at + self.program.ready_within
        while True:
            if not self.is_running():
                raise self._not_ready(f"ended with exit code {self.exit_code} before it was ready")
            if self.program.ready():
                return
            if time.monotonic() > deadline:
                raise self._not_ready(f"was not ready within {self.program.ready_within:g} seconds")
            time.sleep(POLL)

    def signal_group(self, number: signal.Signals) -> None:
        # A member that has changed its user refuses us unless we are root; the rest still get the signal.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def stop(self, stop_signal: signal.Signals | None = None) -> None:
        """Ends it and all of its group; returns when it is gone."""
        self.ask_to_stop(stop_signal)
        self.end(time.monotonic() + self.program.grace)

    def ask_to_stop(self, stop_signal: signal.Signals | None = None) -> None:
        if self.is_running():
            self.signal_group(stop_signal or self.program.stop_signal)
            # A stopped process gets its signals only once it goes on.
            self.signal_group(signal.SIGCONT)

    def end(self, deadline: float) -> None:
        while self.is_running() and time.monotonic() < deadline:
            time.sleep(POLL)
        self.signal_group(signal.SIGKILL)
        self._popen.wait()
        # Its own children are not ours to reap, and a killed process takes its moment to go.
        deadline = time.monotonic() + LAST_MOMENT
        while self._has_live_group() and time.monotonic() < deadline:
            time.sleep(POLL)

    def _has_live_group(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return any(_is_live_in(process, self.pid) for process in psutil.process_iter())

    def _spawn(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        program = self.program
        tether = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), str(int(program.orphan_signal))]
        return subprocess.Popen(
            [*tether, program.user, *program.command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=program.directory,
            env={**os.environ, **program.environment},
            process_group=0,
        )

    def _not_ready(self, reason: str) -> NotReady:
        return NotReady(self.program.name, reason, self.log, last_lines(self.log))


def _is_live_in(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ProcessLookupError):
        return False


def stop_all(processes: Iterable[Process]) -> None:
    """Ends them side by side: the whole takes as long as the slowest."""
    processes = list(processes)
    for process in processes:
        process.ask_to_stop()
    asked_at = time.monotonic()
    for process in processes:
        process.end(asked_at + process.program.grace)


def last_lines(log: Path, *, lines: int = 15, most_bytes: int = 8_192) -> str:
    """The end of a log, short enough for a terminal."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - most_bytes))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:])


@contextmanager
def signals_held() -> Iterator[None]:
    """For a start and its bookkeeping: a handler that raised between them would lose a process."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
