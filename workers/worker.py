"""One worker process: takes what is due, keeps its slots full, beats for what it holds, records what came of it.

The queue only wakes it. It looks by itself every ``COUNTERSIGN_SWEEP`` seconds, so that a broker that is away costs
latency and nothing else.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.db import Error, InterfaceError, OperationalError, close_old_connections, connection

from ledger.claims import Grant
from ledger.outcomes import Report
from workers import breaker, claims, outcomes, sweeps, trail
from workers.leases import Heartbeat, Lease
from workers.performance import perform
from workers.slots import MOST_TOGETHER, Slots
from workers.together import calls, perform_together

log = logging.getLogger(__name__)

SLOTS = 16
"""Calls in flight per process."""
_GROUP = 2 * MOST_TOGETHER
"""Outcomes that are recorded in one transaction."""
_GROUP_SECONDS = 0.003
"""Recordings wait so long for others to share a transaction with."""
_NOTE_EVERY = 5.0
"""Seconds between two notes of when due work was last looked for."""
_RECORD_AGAIN = 0.2
"""Pause before a recording is repeated that the database did not take."""


@dataclass(frozen=True, slots=True)
class _Call:
    """What goes out in one request: one grant, or many of one connector that takes many."""

    grants: Sequence[Grant]
    leases: Sequence[Lease]
    reports: Sequence[Report] = ()


class Worker:
    """Claims, performs and records with threads of its own. ``name`` is what attempts and control events keep."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._execution = settings.EXECUTION
        self._awake = threading.Event()
        self._stopping = threading.Event()
        self._slots = Slots(SLOTS)
        self._breaker = breaker.Breaker()
        self._done: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._note_from = 0.0
        self._after = 0
        self._reserving: list[int] = []
        self._heartbeat = Heartbeat(worker=name, lease=self._execution.lease)
        self._pool = ThreadPoolExecutor(SLOTS, thread_name_prefix="call")
        self._threads = [
            threading.Thread(target=self._dispatch, name="dispatch", daemon=True),
            threading.Thread(target=self._record, name="record", daemon=True),
            threading.Thread(target=self._sweep, name="sweep", daemon=True),
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
        dispatch, record, sweep = self._threads
        self._stopping.set()
        self._awake.set()
        dispatch.join()
        self._pool.shutdown(wait=True)
        self._done.put(None)
        record.join()
        sweep.join()
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
        """Claims what the free slots can send at once; returns whether there may be more."""
        if (free := self._slots.free) == 0:
            return False
        # Half of what is free, so that look-ups at a sink that hangs leave room for the others.
        again = self._grants(partial(claims.take_over, most=(free + 1) // 2))
        new = self._grants(self._claim_new)
        reserved = sum(
            self._grants(partial(claims.claim_reserving, resource_id=resource_id))
            for resource_id in self._reserving
        )
        self._note(claim=new + reserved, take_over=again)
        return bool(again or new or reserved) or self._after != 0

    def _note(self, **found: int) -> None:
        """Now and then, for those who watch whether anybody looks."""
        if time.monotonic() >= self._note_from:
            self._note_from = time.monotonic() + _NOTE_EVERY
            sweeps.made(**found)

    def _claim_new(self, *, worker: str, lease: float) -> list[Grant]:
        self._reserving = []
        room = self._slots.room(self._slots.free)
        claimed = claims.claim(worker=worker, most=MOST_TOGETHER, after=self._after, lease=lease, room=room)
        self._after, self._reserving = claimed.go_on, claimed.reserving
        return claimed.grants

    def _grants(self, ask: Callable[..., list[Grant]]) -> int:
        """Asks for grants and sets out on each at once: whatever fails after this, none that was given is dropped."""
        asked_at = time.monotonic()  # before the transaction: the database's lease begins no earlier
        grants = ask(worker=self.name, lease=self._execution.lease)
        for call in calls(grants):
            self._submit(call, asked_at)
        trail.granted(grants, worker=self.name)
        return len(grants)

    def _submit(self, grants: Sequence[Grant], asked_at: float) -> None:
        leases = [self._leased(grant, asked_at) for grant in grants]
        self._slots.take(grants)
        self._pool.submit(self._perform, _Call(grants, leases))

    def _leased(self, grant: Grant, asked_at: float) -> Lease:
        lease = Lease(
            order_id=grant.order_id,
            token=grant.token,
            ends=asked_at + self._execution.lease,
            call_ends=asked_at + self._execution.call_timeout,
        )
        self._heartbeat.hold(lease)
        return lease

    def _perform(self, call: _Call) -> None:
        if len(call.grants) == 1:
            reports = [perform(call.grants[0], call.leases[0], worker=self.name)]
        else:
            reports = perform_together(call.grants, call.leases, worker=self.name)
        self._done.put(_Call(call.grants, call.leases, reports))

    # Record: one thread, small groups.

    def _record(self) -> None:
        while (first := self._done.get()) is not None:
            group, ended = self._group(first)
            grants = [grant for call in group for grant in call.grants]
            reports = [report for call in group for report in call.reports]
            self._record_until_taken(reports)
            self._breaker.watch(grants, reports)
            for call in group:
                for lease in call.leases:
                    self._heartbeat.release(lease)
            self._slots.give_back(len(group), grants)
            self.wake()
            if ended:
                break
        connection.close()

    def _group(self, first: _Call) -> tuple[list[_Call], bool]:
        group, until = [first], time.monotonic() + _GROUP_SECONDS
        while sum(len(call.grants) for call in group) < _GROUP:
            try:
                call = self._done.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if call is None:
                return group, True
            group.append(call)
        return group, False

    def _record_until_taken(self, reports: Sequence[Report]) -> None:
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
                trail.ended(reports)
                return

    # Sweep: whichever worker is first makes the regular looks that are due.

    def _sweep(self) -> None:
        while not self._stopping.wait(self._execution.sweep):
            sweeps.run_due()
        connection.close()
