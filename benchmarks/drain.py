"""The whole path: approved operations drained by Celery workers that run as the demo's do."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from benchmarks import rig, seeding
from config.demo import services
from config.embedded.processes import Process, Program, stop_all

_LEFT = """
SELECT (SELECT count(*) FROM ledger_operation WHERE state = 'not_started')
     + (SELECT count(*) FROM ledger_operation WHERE state IN ('started', 'outcome_unknown'))
"""
"""By the partial indexes: whoever watches a drain must not read a long past over and over beside it."""
_SPAN = """
SELECT extract(epoch FROM max(o.settled_at) - (SELECT at FROM released))::float8,
       count(*), count(DISTINCT o.reference), (SELECT count(*) FROM ledger_attempt)
FROM ledger_operation o WHERE o.settled_at >= (SELECT at FROM released)
"""


@dataclass(frozen=True, slots=True)
class Drained:
    """What draining came to; the time runs from the commit that made all of it due to the last recording."""

    count: int
    seconds: float
    attempts: int
    wal: int
    commits: int

    @property
    def per_second(self) -> float:
        """Operations settled in a second."""
        return self.count / self.seconds


def workers(database: str, count: int, **environment: str) -> list[Program]:
    """The demo's workers, on this database, with the benchmark's connector."""
    programs = [services.worker(f"worker-{number + 1}", rig.FOLDER) for number in range(count)]
    return [
        replace(
            program,
            command=["benchmarks.app" if word == "config" else word for word in program.command],
            environment={**program.environment, "DATABASE_URL": rig.url(database), **environment},
        )
        for program in programs
    ]


@contextmanager
def running(*programs: Program) -> Iterator[list[Process]]:
    """Runs the programs until the block ends."""
    with ExitStack() as stack:
        processes: list[Process] = []
        stack.callback(lambda: stop_all(processes))
        for program in programs:
            log = rig.FOLDER / "log" / f"{program.name}.log"
            log.unlink(missing_ok=True)
            program.prepare()
            processes.append(Process(program, log))
        for process in processes:
            process.wait_until_ready()
        yield processes


@contextmanager
def empty_sinks() -> Iterator[None]:
    """Sinks that have seen none of our keys: one that had would only repeat its answers."""
    rig.empty_own_ledger()
    for old in rig.FOLDER.glob("sandbox.sqlite3*"):
        old.unlink()
    with running(services.sandbox(rig.FOLDER)):
        yield


def drain(original: str, *, count: int, processes: int, **environment: str) -> Drained:
    """Drains a copy of a database of approved operations with so many worker processes."""
    database = "bench_drain"
    rig.copy_database(original, database)
    with running(*workers(database, processes, **environment)):
        before = rig.lsn()
        seeding.release(database)
        rig.wait_for(f"{count} operations", lambda: rig.run_sql(database, _LEFT)[0][0] == 0)
        ((seconds, settled, references, attempts),) = rig.run_sql(database, _SPAN)
        wal, commits = rig.written(before, rig.lsn())
    if not settled == references == count:
        raise RuntimeError(
            f"{count} operations were due, {settled} were settled with {references} references."
        )
    return Drained(settled, seconds, attempts, wal, commits)
