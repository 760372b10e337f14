"""``make bench``: everything side by side in one run, interleaved, as medians and ratios, to var/bench.json."""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict

import django

from benchmarks import rig  # first: it says where the database is
from config.embedded import postgres

_RESULTS = rig.OUTPUT / "bench.json"
_PLANS = rig.OUTPUT / "bench-plans.txt"


def main() -> int:
    """Runs what was asked for, prints the table, and writes the results."""
    wanted = _arguments()
    rig.make_folder()
    with postgres.Server(rig.POSTGRES) as server:
        django.setup()
        rig.prepare(server)
        results = Run(wanted).all()
    rig.remove_data()
    _RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    _print(results)
    print(
        f"\nWritten to {_RESULTS.relative_to(rig.REPOSITORY)}; plans in {_PLANS.relative_to(rig.REPOSITORY)}."
    )
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--repeats", type=int, default=3, help="interleaved rounds; medians are taken over them"
    )
    parser.add_argument("--seconds", type=int, default=4, help="of each run of pgbench")
    parser.add_argument("--count", type=int, default=10_000, help="operations that are drained at a time")
    parser.add_argument(
        "--settled", type=int, default=1_000_000, help="operations of the long past; 0 leaves it out"
    )
    parser.add_argument("--latency", type=int, default=200, help="approvals, 20 a second; 0 leaves it out")
    return parser.parse_args()


Measurement = Callable[[], float]


class Run:
    """One run: the databases, the rounds, and what each measurement came to."""

    def __init__(self, wanted: argparse.Namespace) -> None:
        self._wanted = wanted
        self._found: defaultdict[str, list[float]] = defaultdict(list)
        self._details: dict[str, object] = {}

    def all(self) -> dict[str, object]:
        """Everything, in rounds, so that what the machine does beside it meets all of them alike."""
        from benchmarks import past, seeding

        began = time.monotonic()
        self._world = seeding.make_base()
        past.check(self._world)
        self._seed()
        for number in range(self._wanted.repeats):
            for name, measure in self._measurements().items():
                self._note(name, measure)
            _say(
                f"round {number + 1} of {self._wanted.repeats} is over after {time.monotonic() - began:.0f} s"
            )
        if self._wanted.latency:
            self._latency()
        return self._results(time.monotonic() - began)

    def _seed(self) -> None:
        from benchmarks import past, plans, seeding

        for action in ("nothing", "own", "refund"):
            seeding.make_approved(f"bench_{action}", self._world, action=action, count=self._count(action))
        if self._wanted.settled:
            _say(f"writing {self._wanted.settled:,} settled operations")
            past.make_settled("bench_past", self._world, count=self._wanted.settled)
            for action in ("nothing", "own"):
                seeding.make_approved(
                    f"bench_past_{action}",
                    self._world,
                    action=action,
                    count=self._count(action),
                    original="bench_past",
                )
            rig.drop_database("bench_past")
        original = "bench_past_nothing" if self._wanted.settled else "bench_nothing"
        found = plans.explain(original)
        _PLANS.write_text("\n\n".join(f"== {name}\n{plan}" for name, plan in found.items()) + "\n")
        for action in ("nothing", "own", "refund"):
            seeding.copy_held_back(f"bench_{action}")
        if self._wanted.settled:
            seeding.copy_held_back("bench_past_own")

    def _count(self, action: str) -> int:
        count: int = self._wanted.count
        return max(100, count // 4) if action == "refund" else count

    def _measurements(self) -> dict[str, Measurement]:
        from benchmarks import dbos_side, limit, plain_side

        measurements: dict[str, Measurement] = {}
        for script in limit.SCRIPTS:
            measurements[f"limit {script.name}"] = lambda script=script: limit.run(  # type: ignore[misc]
                script, seconds=self._wanted.seconds
            )
        measurements["claim and record"] = lambda: self._bare("bench_nothing", "claim and record")
        if self._wanted.settled:
            measurements["claim and record, long past"] = lambda: self._bare(
                "bench_past_nothing", "claim and record, long past"
            )
        if dbos_side.is_installed():
            measurements["dbos"] = lambda: dbos_side.run(count=1000)
        measurements["plain celery"] = lambda: plain_side.run(count=2000)
        for action in ("nothing", "refund", "own"):
            for processes in (1, 2):
                name = f"ours {action} {processes}"
                measurements[name] = lambda action=action, processes=processes, name=name: (  # type: ignore[misc]
                    self._drain(f"bench_{action}", action, processes, name)
                )
        if self._wanted.settled:
            name = "ours own 2, long past"
            measurements[name] = lambda: self._drain("bench_past_own", "own", 2, name)
        return measurements

    def _note(self, name: str, measure: Measurement) -> None:
        found = measure()
        self._found[name].append(found)
        _say(f"{name:30} {found:10,.0f} /s   load {os.getloadavg()[0]:.1f}")

    def _bare(self, original: str, name: str) -> float:
        from benchmarks import bare

        rig.copy_database(original, "bench_run")
        done = bare.drain_side_by_side("bench_run", processes=2)  # the limit has two clients
        self._per_operation(name, done.wal, done.commits, done.count)
        return done.per_second

    def _drain(self, original: str, action: str, processes: int, name: str) -> float:
        from benchmarks import drain

        with drain.empty_sinks():
            done = drain.drain(f"{original}_held", count=self._count(action), processes=processes)
        self._per_operation(name, done.wal, done.commits, done.count)
        return done.per_second

    def _per_operation(self, name: str, wal: int, commits: int, count: int) -> None:
        self._details[name] = {"wal_bytes": round(wal / count), "commits": round(commits / count, 4)}

    def _latency(self) -> None:
        from benchmarks import drain, latency

        for action in ("nothing", "refund", "own"):
            with drain.empty_sinks():
                found = latency.measure(self._world, action=action, count=self._wanted.latency, per_second=20)
            self._details[f"latency {action}"] = asdict(found)
            _say(f"latency {action:22} p50 {found.p50:.0f} ms  p95 {found.p95:.0f} ms  idle {found.idle:.2%}")

    def _results(self, took: float) -> dict[str, object]:
        medians = {name: statistics.median(found) for name, found in self._found.items()}
        return {
            "machine": {
                "processors": os.cpu_count(),
                "python": platform.python_version(),
                "load": os.getloadavg(),
            },
            "broker": rig.broker(),
            "settled": self._wanted.settled,
            "repeats": self._wanted.repeats,
            "seconds": round(took),
            "per_second": {name: [round(each, 1) for each in found] for name, found in self._found.items()},
            "median": {name: round(each, 1) for name, each in medians.items()},
            "ratios": _ratios(medians),
            "per_operation": self._details,
        }


def _ratios(median: dict[str, float]) -> dict[str, float]:
    """Each against what it is to be held against; only of this run."""

    def best(*names: str) -> float | None:
        found = [median[name] for name in names if name in median]
        return max(found) if found else None

    own, http = best("ours own 1", "ours own 2"), best("ours refund 1", "ours refund 2")
    nothing = best("ours nothing 1", "ours nothing 2")
    pairs = {
        "own ledger / dbos": (own, best("dbos")),
        "no-op sink / dbos": (nothing, best("dbos")),
        "sandbox over HTTP / dbos": (http, best("dbos")),
        "own ledger / plain celery": (own, best("plain celery")),
        "no-op sink / plain celery": (nothing, best("plain celery")),
        "sandbox over HTTP / plain celery": (http, best("plain celery")),
        "claim and record / limit batch": (best("claim and record"), best("limit batch")),
        "own ledger / limit batch_own": (own, best("limit batch_own")),
        "claim and record: long past / none": (best("claim and record, long past"), best("claim and record")),
        "own ledger: long past / none": (best("ours own 2, long past"), best("ours own 2")),
    }
    return {name: round(ours / other, 4) for name, (ours, other) in pairs.items() if ours and other}


def _print(results: dict[str, object]) -> None:
    median, ratios, details = results["median"], results["ratios"], results["per_operation"]
    assert isinstance(median, dict) and isinstance(ratios, dict) and isinstance(details, dict)
    print(f"\n{'median of the rounds':38} {'per second':>12} {'WAL B/op':>9} {'commits/op':>11}")
    for name, found in median.items():
        of = details.get(name, {})
        print(f"{name:38} {found:12,.0f} {of.get('wal_bytes', ''):>9} {of.get('commits', ''):>11}")
    print(f"\n{'ratio within this run':38} {'':>12}")
    for name, ratio in ratios.items():
        print(f"{name:38} {ratio:12.2f}")
    for name, found in details.items():
        if name.startswith("latency"):
            print(f"{name:38} p50 {found['p50']:.0f} ms, p95 {found['p95']:.0f} ms, idle {found['idle']:.2%}")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
