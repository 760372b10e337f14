"""One worker process: takes what is due, keeps its slots full, beats for what it holds, records what came of it.

The queue only wakes it. It looks by itself every ``COUNTERSIGN_SWEEP`` seconds, so that a broker that is away costs
latency and nothing else.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.db import Error, InterfaceError, OperationalError, close_old_connections, connection

from ledger.claims import Grant
from ledger.outcomes import Report
from workers import breaker, claims, outcomes, sweeps, trail
from workers.claims import Claimed
from workers.leases import Heartbeat, Lease
from workers.performance import perform
from workers.slots import MOST_TOGETHER, Room, Slots
from workers.together import calls, perform_together

log = logging.getLogger(__name__)

SLOTS = 64
"""Calls in flight per process."""
_ENOUGH = SLOTS // 2
_A_WHILE = 0.03
"""While more is known to be due, a claim waits so many seconds for so many free slots: it costs as much for a few."""
_AGAIN_EVERY = 0.25
"""Seconds between two looks for lapsed leases and back-offs that are over."""
_GROUP = 2 * MOST_TOGETHER
"""Outcomes that are recorded in one transaction."""
_GROUP_SECONDS = 0.005
"""Recordings wait so long for others that are on their way, to share a transaction with them."""
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


_NOTHING = Claimed([], go_on=0, reserving=[], more=False)


@dataclass(frozen=True, slots=True)
class _Barren:
    """A turn over all resources that found nothing but for tools that were full, after so many rings."""

    until: float
    rings: int
    full: frozenset[int]

    def holds(self, now: float, rings: int, full: Collection[int]) -> bool:
        """Whether nothing can have become due since that there is room for: asking costs a look at all that is due."""
        return now < self.until and rings == self.rings and bool(self.full) and self.full.issubset(full)


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
        self._look_again_from = 0.0
        self._claimed_at = 0.0
        self._last = _NOTHING
        self._rings = 0
        self._barren = _Barren(until=0.0, rings=0, full=frozenset())
        self._empty_turn = False
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
        self._rings += 1
        self._awake.set()

    # Dispatch: the only thread that claims.

    def _dispatch(self) -> None:
        while not self._stopping.is_set():
            self._awake.clear()
            try:
                pause = self._take()
            except Error:
                log.warning("due work could not be claimed; looking again at the next sweep", exc_info=True)
                close_old_connections()
                pause = self._execution.sweep
            except Exception:  # one bad row must not end the only thread that claims
                log.exception("the claim failed; looking again at the next sweep")
                pause = self._execution.sweep
            if pause:
                self._awake.wait(pause)
        connection.close()

    def _take(self) -> float:
        """Takes over and claims what the free slots can send; returns the seconds to rest for, unless it is woken."""
        if self._slots.free == 0:
            return self._execution.sweep
        again = self._take_over()
        rest = self._claim()
        if again is None:
            return min(rest, _AGAIN_EVERY)
        return 0.0 if again else rest

    def _take_over(self) -> int | None:
        """How many; None where it was looked a moment ago."""
        if time.monotonic() < self._look_again_from:
            return None
        # Half of what is free, so that look-ups at a sink that hangs leave room for the others.
        most = (self._slots.free + 1) // 2
        taken = self._grants(partial(claims.take_over, most=most))
        self._look_again_from = time.monotonic() + (0.0 if taken == most else _AGAIN_EVERY)
        self._note(take_over=taken)
        return taken

    def _claim(self) -> float:
        now, free = time.monotonic(), self._slots.free
        patient = self._last.more and now < self._claimed_at + _A_WHILE
        room = self._slots.room(free, patient=patient)
        if free < (_ENOUGH if patient else 1) or self._barren.holds(now, self._rings, room.full):
            return _A_WHILE if patient else self._execution.sweep
        began, rings = self._last.go_on, self._rings
        found = self._grants(partial(self._claim_new, room=room)) + self._claim_reserving()
        self._note(claim=found)
        # Only a turn that began at the first resource and found nothing up to the last one has seen everything.
        self._empty_turn = not found and (began == 0 or self._empty_turn)
        if not (self._empty_turn and self._last.go_on == 0):
            return 0.0
        self._barren = _Barren(now + self._execution.sweep, rings, frozenset(room.full))
        return self._execution.sweep

    def _note(self, **found: int) -> None:
        """Now and then, for those who watch whether anybody looks."""
        if time.monotonic() >= self._note_from:
            self._note_from = time.monotonic() + _NOTE_EVERY
            sweeps.made(**found)

    def _claim_new(self, *, room: Room, worker: str, lease: float) -> list[Grant]:
        after, self._last = self._last.go_on, _NOTHING  # so that the next one begins anew if this one fails
        self._last = claims.claim(worker=worker, most=MOST_TOGETHER, after=after, lease=lease, room=room)
        self._claimed_at = time.monotonic()
        return self._last.grants

    def _claim_reserving(self) -> int:
        """What a budget counts, each in a transaction of its own, while there is a slot for it."""
        asks = (partial(claims.claim_reserving, resource_id=each) for each in self._last.reserving)
        return sum(self._grants(ask) for ask in asks if self._slots.free)

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
        connection.close()  # of a look-up's question whether anything is halted: these threads are many
        self._done.put(_Call(call.grants, call.leases, reports))

    # Record: one thread, small groups.

    def _record(self) -> None:
        while (first := self._done.get()) is not None:
            group, ended = self._group(first)
            grants = [grant for call in group for grant in call.grants]
            reports = [report for call in group for report in call.reports]
            self._record_until_taken(reports)
            for call in group:
                self._breaker.watch(call.grants, call.reports)
                for lease in call.leases:
                    self._heartbeat.release(lease)
            self._slots.give_back(len(group), grants)
            if not self._barren.full.issuperset(grant.tool_id for grant in grants):
                self._rings += 1  # what waited for one of these resources is due to a tool that has room
            self._awake.set()
            if ended:
                break
        connection.close()

    def _group(self, first: _Call) -> tuple[list[_Call], bool]:
        group, until = [first], time.monotonic() + _GROUP_SECONDS
        while sum(len(call.grants) for call in group) < _GROUP and self._slots.taken > len(group):
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
