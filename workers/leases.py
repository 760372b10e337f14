"""Leases on this worker's side: renewed by a thread of their own, judged by the monotonic clock before a send.

Renewal is a convenience, the token is the authority: a worker that believes in a lease it has lost is refused when it
records (docs/protocol.md, Perform).
"""

import logging
import threading
import time
from dataclasses import dataclass

from django.db import Error, close_old_connections, connection

from ledger import claims

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Lease:
    """One grant's time. All values are of the monotonic clock, in seconds.

    ``ends`` counts from when the last successful renewal was asked for, so it never lies after the database's end.
    """

    order_id: int
    token: int
    ends: float
    call_ends: float
    lost: bool = False

    def holds(self) -> bool:
        """Whether a request may still leave under this grant."""
        return not self.lost and time.monotonic() < min(self.ends, self.call_ends)

    @property
    def time_left(self) -> float:
        """Seconds a call may still take."""
        return self.call_ends - time.monotonic()


class Heartbeat:
    """Renews the leases of all calls in flight, every third of a lease, until each call's deadline."""

    def __init__(self, *, worker: str, lease: float) -> None:
        self._worker = worker
        self._lease = lease
        self._held: dict[tuple[int, int], Lease] = {}
        self._guard = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begins to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Ends after the beat that is under way."""
        self._stopped.set()
        self._thread.join()

    def hold(self, lease: Lease) -> None:
        """Renews this lease from now on. Kept by token: a later grant of the same operation is another lease."""
        with self._guard:
            self._held[lease.token, lease.order_id] = lease

    def release(self, lease: Lease) -> None:
        """Renews it no more; its outcome is on its way to be recorded."""
        with self._guard:
            self._held.pop((lease.token, lease.order_id), None)

    def _run(self) -> None:
        while not self._stopped.wait(self._lease / 3):
            try:
                self.beat()
            except Error:
                log.warning(
                    "leases could not be renewed; they run out unless the next beat succeeds", exc_info=True
                )
                close_old_connections()
        connection.close()

    def beat(self) -> None:
        """Renews what is held once. A lease past its call's deadline is left to run out: a hung call has no heart."""
        asked_at = time.monotonic()
        with self._guard:
            alive = [lease for lease in self._held.values() if asked_at < lease.call_ends and not lease.lost]
        # By order and token: after a stall this worker may hold an old and a new grant of one order.
        renewed = claims.renew(
            [(lease.order_id, lease.token) for lease in alive], worker=self._worker, lease=self._lease
        )
        for lease in alive:
            if (lease.order_id, lease.token) in renewed:
                lease.ends = asked_at + self._lease
            else:
                lease.lost = True
