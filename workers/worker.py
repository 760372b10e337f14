"""One worker process: takes what is due, keeps its slots full, beats for what it holds, records what came of it.

The queue only wakes it. It looks by itself every ``COUNTERSIGN_SWEEP`` seconds, so that a broker that is away costs
latency and nothing else.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from django.conf import settings
from django.db import Error, InterfaceError, OperationalError, close_old_connections, connection

from ledger.claims import Grant
from ledger.outcomes import Report
from workers import claims, outcomes
from workers.leases import Heartbeat, Lease
from workers.performance import perform

log = logging.getLogger(__name__)

SLOTS = 16
"""Calls in flight per process. A sink is never given more claims than can be sent at once."""
_GROUP = 50
_GROUP_SECONDS = 0.003
"""Recordings wait so long for others to share a transaction with."""
_RECORD_AGAIN = 0.2
"""Pause before a recording is repeated that the database did not take."""


class Worker:
    """Claims, performs and records with threads of its own. ``name`` is what attempts and control events keep."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._execution = settings.EXECUTION
        self._awake = threading.Event()
        self._stopping = threading.Event()
        self._in_flight = 0
        self._count = threading.Lock()
        self._reports: queue.SimpleQueue[tuple[Report, Lease] | None] = queue.SimpleQueue()
        self._after = 0
        self._heartbeat = Heartbeat(worker=name, lease=self._execution.lease)
        self._pool = ThreadPoolExecutor(SLOTS, thread_name_prefix="call")
        self._threads = [
            threading.Thread(target=self._dispatch, name="dispatch", daemon=True),
            threading.Thread(target=self._record, name="record", daemon=True),
        ]

    def start(self) -> None:
        """Begins to look for due work at once."""
        self._heartbeat.start()
        for thread in self._threads:
            thread.start()
        self.wake()
        log.info("worker %s is looking for due operations", self.name)

    def stop(self) -> None:
        """Takes nothing new, waits for the calls on the wire and records them."""
        self._stopping.set()
        self._awake.set()
        self._threads[0].join()
        self._pool.shutdown(wait=True)
        self._reports.put(None)
        self._threads[1].join()
        self._heartbeat.stop()
        log.info("worker %s has stopped; nothing is in flight", self.name)

    def wake(self) -> None:
        """Looks for due work now rather than at the next sweep."""
        self._awake.set()

    # Dispatch: the only thread that claims.

    def _dispatch(self) -> None:
        while not self._stopping.is_set():
            self._awake.clear()
            try:
                found = self._take()
            except Error:
                log.warning("due work could not be claimed; looking again at the next sweep", exc_info=True)
                close_old_connections()
                found = False
            except Exception:  # one bad row must not end the only thread that claims
                log.exception("the claim failed; looking again at the next sweep")
                found = False
            if not found:
                self._awake.wait(self._execution.sweep)
        connection.close()

    def _take(self) -> bool:
        """Claims what the free slots can send at once; returns whether there was any."""
        free = SLOTS - self._in_flight
        if free == 0:
            return False
        # Half of what is free, so that look-ups at a sink that hangs leave room for the others.
        again = self._grants(partial(claims.take_over, most=(free + 1) // 2))
        new = self._grants(partial(self._claim_new, most=free - again))
        return bool(again or new) or self._after != 0

    def _claim_new(self, *, worker: str, most: int, lease: float) -> list[Grant]:
        grants, self._after = claims.claim(worker=worker, most=most, after=self._after, lease=lease)
        return grants

    def _grants(self, ask: Callable[..., list[Grant]]) -> int:
        """Asks for grants and sets out on each at once: whatever fails after this, none that was given is dropped."""
        asked_at = time.monotonic()  # before the transaction: the database's lease begins no earlier
        grants = ask(worker=self.name, lease=self._execution.lease)
        for grant in grants:
            self._submit(grant, asked_at)
        return len(grants)

    def _submit(self, grant: Grant, asked_at: float) -> None:
        lease = Lease(
            order_id=grant.order_id,
            token=grant.token,
            ends=asked_at + self._execution.lease,
            call_ends=asked_at + self._execution.call_timeout,
        )
        self._heartbeat.hold(lease)
        with self._count:
            self._in_flight += 1
        self._pool.submit(self._perform, grant, lease)

    def _perform(self, grant: Grant, lease: Lease) -> None:
        self._reports.put((perform(grant, lease, worker=self.name), lease))

    # Record: one thread, small groups.

    def _record(self) -> None:
        while (first := self._reports.get()) is not None:
            group, ended = self._group(first)
            self._record_until_taken([report for report, _lease in group])
            for _report, lease in group:
                self._heartbeat.release(lease)
            with self._count:
                self._in_flight -= len(group)
            self.wake()
            if ended:
                break
        connection.close()

    def _group(self, first: tuple[Report, Lease]) -> tuple[list[tuple[Report, Lease]], bool]:
        group, until = [first], time.monotonic() + _GROUP_SECONDS
        while len(group) < _GROUP:
            try:
                item = self._reports.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if item is None:
                return group, True
            group.append(item)
        return group, False

    def _record_until_taken(self, reports: list[Report]) -> None:
        """Repeats while the database is away: the outcome is known, and must not be lost with the connection."""
        while True:
            try:
                outcomes.record(reports)
            except (OperationalError, InterfaceError):
                log.warning("%d outcomes wait for the database", len(reports), exc_info=True)
                close_old_connections()
                if self._stopping.wait(_RECORD_AGAIN):
                    time.sleep(_RECORD_AGAIN)
            except Exception:  # a report that cannot be recorded is found again by its lapsed lease
                log.exception("%d outcomes could not be recorded; their leases run out", len(reports))
                return
            else:
                return
