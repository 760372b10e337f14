"""Two real connections and no luck: the winner holds its locks, the loser is seen waiting, then both go on."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import connection, transaction

PATIENCE = 60.0  # seconds: how long a race waits for what must come before it fails
_LOOK = 0.002  # seconds between two looks


@dataclass
class Came:
    """What an act came to: its value, or the error it raised."""

    value: object = None
    error: Exception | None = None


class Rival:
    """An act in a thread and on a connection of its own."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.came = Came()
        self.pid = 0
        self._act = act
        self._connected = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins, and returns once it has a connection."""
        self._thread.start()
        assert self._connected.wait(PATIENCE), "no connection came about"

    def join(self, patience: float = PATIENCE) -> Came:
        """Waits for its end."""
        self._thread.join(patience)
        assert not self._thread.is_alive(), "it never came to an end"
        return self.came

    def _run(self) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                (self.pid,) = cursor.fetchone()
            self._connected.set()
            self.came.value = self._act()
        except Exception as error:  # noqa: BLE001  whatever it is, the test wants to see it
            self.came.error = error
        finally:
            connection.close()


class Holder(Rival):
    """An act whose transaction stays open until it is let go."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._holds = threading.Event()
        self._may_go = threading.Event()
        super().__init__(lambda: self._hold(act))

    def start(self) -> None:
        """Begins, and returns once the act is done and its locks are held."""
        super().start()
        assert self._holds.wait(PATIENCE), f"the winner never got there: {self.came.error!r}"

    def let_go(self) -> Came:
        """Commits, and waits for the end."""
        self._may_go.set()
        return self.join()

    def _hold(self, act: Callable[[], object]) -> object:
        with transaction.atomic():
            value = act()
            self._holds.set()
            assert self._may_go.wait(PATIENCE), "nobody let the winner go"
        return value


def race(*, winner: Callable[[], object], loser: Callable[[], object]) -> tuple[Came, Came]:
    """Lets the winner take its locks first, sees the loser wait for them, and then lets both come to an end."""
    first, second = Holder(winner), Rival(loser)
    first.start()
    second.start()
    try:
        _see_waiting(second, blocked_by=first)
    finally:
        won = first.let_go()
    return won, second.join()


def passes_by(*, holder: Callable[[], object], passer: Callable[[], object]) -> tuple[Came, Came]:
    """Lets the passer come to an end while the holder still holds its locks: it waits for nobody."""
    first, second = Holder(holder), Rival(passer)
    first.start()
    try:
        second.start()
        passed = second.join()
    finally:
        held = first.let_go()
    return held, passed


def _see_waiting(rival: Rival, *, blocked_by: Rival) -> None:
    deadline = time.monotonic() + PATIENCE
    while not _waits(rival.pid, blocked_by.pid):
        assert time.monotonic() < deadline, f"the loser never waited; it came to {rival.came}"
        time.sleep(_LOOK)


def _waits(pid: int, holder: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT wait_event_type = 'Lock' AND %s = ANY(pg_blocking_pids(pid)) FROM pg_stat_activity WHERE pid = %s",
            [holder, pid],
        )
        return bool(cursor.fetchone() == (True,))
