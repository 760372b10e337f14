"""From a person's approval to the settled operation, and what waiting for one costs."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from approvals.models import Case
from benchmarks import drain, rig, seeding
from config.embedded.processes import Process
from tests.seeding import Named, cases_like
from tests.worlds import World, approve

_DATABASE = "bench_latency"
_WAITS = """
SELECT extract(epoch FROM o.settled_at - r.at)::float8 FROM ledger_operation o
JOIN ledger_order d ON d.id = o.order_id
JOIN approvals_revision r ON r.case_id = d.subject AND r.act = 'approved'
WHERE o.state = 'committed' AND d.subject > {model}
"""


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from approval to settled, at a steady rate; the workers' share of one processor while idle."""

    p50: float
    p95: float
    count: int
    idle: float


def measure(world: World, *, action: str, count: int, per_second: float) -> Latency:
    """Approves so many cases one after the other, as a reviewer does, beside one worker."""
    rig.copy_database(seeding.BASE, _DATABASE)
    with rig.at(_DATABASE):
        model = seeding.model(world, action)
        names = [Named(f"l{number}", f"order:l{number}") for number in range(count + 5)]
        waiting = cases_like(model, names, approved=False)
        reviewer = world.reviewer
        with drain.running(*drain.workers(_DATABASE, 1)) as processes:
            rig.wait_for("the first", lambda: rig.run_sql(_DATABASE, _LEFT)[0][0] == 0)
            idle = _share(processes, seconds=3.0)
            _approve_at(
                waiting[:5], reviewer, per_second
            )  # connections and the first publish are not measured
            first = waiting[5]
            _approve_at(waiting[5:], reviewer, per_second)
            rig.wait_for("all of them", lambda: rig.run_sql(_DATABASE, _LEFT)[0][0] == 0)
            rows = rig.run_sql(_DATABASE, _WAITS.format(model=first - 1))
    waits = sorted(wait * 1000 for (wait,) in rows)
    cut = statistics.quantiles(waits, n=20)
    return Latency(statistics.median(waits), cut[-1], len(waits), idle)


_LEFT = "SELECT count(*) FROM ledger_operation WHERE settled_at IS NULL"


def _approve_at(cases: Sequence[int], reviewer: object, per_second: float) -> None:
    due = time.monotonic()
    for case_id in cases:
        due += 1 / per_second
        case = Case.objects.select_related("proposal__policy", "proposal__tool_version", "agent").get(
            pk=case_id
        )
        approve(case, reviewer)  # type: ignore[arg-type]
        time.sleep(max(0.0, due - time.monotonic()))


def _share(processes: Sequence[Process], *, seconds: float) -> float:
    """The processor time that the processes use while nothing is due, as a share of one."""
    watched = [each for process in processes for each in _family(process.pid)]
    before = sum(_used(each) for each in watched)
    time.sleep(seconds)
    return (sum(_used(each) for each in watched) - before) / seconds


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
