"""Claim and recording alone: the product's own functions in one process, fifty at a time, no sink and no queue."""

import multiprocessing
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from accounts.sql import Queries
from benchmarks import rig
from workers import claims, outcomes
from workers.connectors.answers import Receipt
from workers.performance import report_of

TOGETHER = 50
_WORKER = "bench@bare"


@dataclass(frozen=True, slots=True)
class Bare:
    """What draining a database with the bare functions came to. Times in seconds, sizes in bytes."""

    count: int
    claiming: float
    recording: float
    wal: int
    commits: int

    @property
    def per_second(self) -> float:
        """Operations claimed and recorded in a second."""
        return self.count / (self.claiming + self.recording)


def drain(database: str) -> Bare:
    """Claims and records everything that is due in the database."""
    count, claiming, recording, after = 0, 0.0, 0.0, 0
    with rig.at(database):
        before = rig.lsn()
        while True:
            began = time.perf_counter()
            from_the_start = after == 0
            claimed = claims.claim(worker=_WORKER, most=TOGETHER, after=after, lease=30.0)
            granted = time.perf_counter()
            claiming += granted - began
            grants, after = claimed.grants, claimed.go_on
            if not grants and from_the_start:
                break
            reports = [
                report_of(each, Receipt(each.key, "done"), sent=True, lookups=0, worker=_WORKER)
                for each in grants
            ]
            if reports:
                outcomes.record(reports)
            recording += time.perf_counter() - granted
            count += len(grants)
        wal, commits = rig.written(before, rig.lsn())
    return Bare(count, claiming, recording, wal, commits)


def drain_side_by_side(database: str, *, processes: int) -> Bare:
    """The same in so many processes at once, as pgbench has clients; times are those of the longest at work."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        before = rig.lsn()
        done = list(pool.map(drain, [database] * processes))
        wal, commits = rig.written(before, rig.lsn())
    longest = max(done, key=lambda each: each.claiming + each.recording)
    return Bare(sum(each.count for each in done), longest.claiming, longest.recording, wal, commits)


@dataclass(slots=True)
class Clock:
    """How long each named statement took, as the process that asked saw it."""

    calls: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


@contextmanager
def statements_timed() -> Iterator[Clock]:
    """Inside, every statement of the apps' ``queries.sql`` is timed."""
    clock, ask = Clock(), Queries.rows

    def timed(queries: Queries, name: str, **parameters: Any) -> list[Any]:
        began = time.perf_counter()
        try:
            return ask(queries, name, **parameters)
        finally:
            clock.calls[name] += 1
            clock.seconds[name] += time.perf_counter() - began

    Queries.rows = timed  # type: ignore[method-assign,assignment]
    try:
        yield clock
    finally:
        Queries.rows = ask  # type: ignore[method-assign]
