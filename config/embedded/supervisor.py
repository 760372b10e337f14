"""Starts named programs, starts them again when they die, and leaves none behind.

    with Supervisor(directory) as supervisor:
        supervisor.start(database)
        supervisor.start(web, worker)
        supervisor.watch()

Ctrl-C, SIGTERM or SIGHUP leaves the block quietly; whatever was started last is ended first, with all that
it started itself. Should the supervisor be killed, the kernel ends its children; their own children have
to notice, as gunicorn's and PostgreSQL's do. Logs are `log/NAME.log` and process numbers `run/NAME.pid` in
the directory.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from config.embedded.locks import Lock, hold_lock
from config.embedded.processes import STOP_SIGNALS, Process, Program, signals_held, stop_all

FIRST_BACKOFF = 0.25  # seconds before a dead child is started again; doubles each time
LONGEST_BACKOFF = 15.0
STEADY = 30.0  # seconds of life after which a child has earned the first back-off again
PAUSE = 0.1  # seconds between two looks at the children


class Interrupted(KeyboardInterrupt):
    """Somebody asked the supervisor to stop. No Exception: nothing on the way may take it for an error."""


class Supervisor:
    def __init__(self, directory: Path, *, announce: Callable[[str], None] = print) -> None:
        self._directory = directory
        self._announce = announce
        self._children: dict[str, Child] = {}
        self._batches: list[list[Child]] = []
        self._stopping = False
        self._lock: Lock | None = None
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Supervisor":
        self._lock = hold_lock(self._directory / "demo.lock", what="The demo")
        for number in STOP_SIGNALS:
            self._handlers[number] = signal.getsignal(number)
            if not (number == signal.SIGHUP and self._handlers[number] == signal.SIG_IGN):  # nohup
                signal.signal(number, self._interrupt)
        return self

    def start(self, *programs: Program) -> None:
        """Starts them side by side, returns when all are ready; raises NotReady for the first that is not."""
        batch: list[Child] = []
        self._batches.append(batch)
        for program in programs:
            program.prepare()
            with signals_held():
                child = self._children[program.name] = Child(program, self._directory)
                batch.append(child)
        for child in batch:
            child.process.wait_until_ready()

    def pid(self, name: str) -> int:
        return self._children[name].process.pid

    def mend(self) -> None:
        """Starts each child again that has died and whose back-off is over. Does not wait for readiness."""
        for child in self._children.values():
            if not child.process.is_running():
                self._mend(child)

    def watch(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """Mends until the condition holds or somebody asks us to stop."""
        while not until():
            self.mend()
            time.sleep(PAUSE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._stopping = True
        for batch in reversed(self._batches):
            stop_all(child.process for child in batch)
            for child in batch:
                child.pid_file.unlink(missing_ok=True)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._lock:
            self._lock.release()
        return isinstance(error, Interrupted)

    def _mend(self, child: "Child") -> None:
        if child.restart_at is None:
            child.schedule()
            self._announce(child.obituary())
        elif time.monotonic() >= child.restart_at:
            child.program.prepare()
            with signals_held():
                child.restart()
            self._announce(f"{child.program.name} runs again (process {child.process.pid}).")

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        # Only the first counts: a second one must not cut the stopping short.
        if not self._stopping:
            self._stopping = True
            raise Interrupted(signal.Signals(number).name)


class Child:
    """A program in the supervisor's care, and its present run."""

    def __init__(self, program: Program, directory: Path) -> None:
        self.program = program
        self.log = directory / "log" / f"{program.name}.log"
        self.pid_file = directory / "run" / f"{program.name}.pid"
        self.restart_at: float | None = None
        self._backoff = FIRST_BACKOFF
        self._begin(fresh_log=True)

    def schedule(self) -> None:
        self.process.signal_group(signal.SIGKILL)  # what it may have started itself
        if time.monotonic() - self.process.started_at > STEADY:
            self._backoff = FIRST_BACKOFF
        self.restart_at = time.monotonic() + self._backoff
        self._backoff = min(self._backoff * 2, LONGEST_BACKOFF)

    def restart(self) -> None:
        self.restart_at = None
        self._begin(fresh_log=False)

    def obituary(self) -> str:
        code = self.process.exit_code
        end = (
            f"was ended by {signal.Signals(-code).name}"
            if code and code < 0
            else f"ended with exit code {code}"
        )
        return f"{self.program.name} {end}; it is started again (log: {os.path.relpath(self.log)})."

    def _begin(self, *, fresh_log: bool) -> None:
        self.process = Process(self.program, self.log, fresh_log=fresh_log)
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        self.pid_file.write_text(f"{self.process.pid}\n")
