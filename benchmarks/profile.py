"""Where the time goes in claim, recording and performing: ``python -m benchmarks.profile``.

Three views: each named statement as the client waits for it, the functions of one process that claims and records,
and what the threads of a real worker are seen doing while it drains.
"""

import cProfile
import io
import pstats
from collections import Counter

import django

from benchmarks import rig  # first: it says where the database is
from config.embedded import postgres

_COUNT = 5000


def main() -> None:
    """Prints the three views."""
    rig.make_folder()
    with postgres.Server(rig.POSTGRES) as server:
        django.setup()
        from benchmarks import seeding

        rig.prepare(server)
        world = seeding.make_base()
        for action in ("nothing", "own", "refund"):
            seeding.make_approved(f"bench_{action}", world, action=action, count=_COUNT)
        _statements()
        _functions()
        for action in ("nothing", "own", "refund"):
            seeding.copy_held_back(f"bench_{action}")
        _threads()
    rig.remove_data()


def _statements() -> None:
    from benchmarks import bare

    rig.copy_database("bench_nothing", "bench_run")
    with bare.statements_timed() as clock:
        done = bare.drain("bench_run")
    print(f"Claim and recording, {bare.TOGETHER} at a time: {done.per_second:,.0f} operations a second.\n")
    print(f"{'statement':32} {'calls':>6} {'ms each':>8} {'share':>6}")
    whole = done.claiming + done.recording
    for name, seconds in sorted(clock.seconds.items(), key=lambda each: -each[1]):
        calls = clock.calls[name]
        print(f"{name:32} {calls:6} {seconds / calls * 1000:8.2f} {seconds / whole:6.1%}")
    print(f"{'everything else':32} {'':6} {'':8} {1 - sum(clock.seconds.values()) / whole:6.1%}\n")


def _functions() -> None:
    from benchmarks import bare

    rig.copy_database("bench_nothing", "bench_run")
    profile = cProfile.Profile()
    profile.enable()
    bare.drain("bench_run")
    profile.disable()
    for order in ("tottime", "cumtime"):
        text = io.StringIO()
        pstats.Stats(profile, stream=text).strip_dirs().sort_stats(order).print_stats(25)
        print(text.getvalue())


def _threads() -> None:
    from benchmarks import app, drain, sampler

    for action in ("nothing", "own", "refund"):
        for old in rig.FOLDER.glob("samples-*.tsv"):
            old.unlink()
        with drain.empty_sinks():
            to = {app.SAMPLES: str(rig.FOLDER)}
            done = drain.drain(f"bench_{action}_held", count=_COUNT, processes=1, **to)
        print(f"\n{action}: {done.per_second:,.0f} operations a second, {done.seconds:.1f} s.")
        _print_samples([row for file in rig.FOLDER.glob("samples-*.tsv") for row in sampler.read(file)])


def _print_samples(rows: list[tuple[str, str, str, int]]) -> None:
    from benchmarks import sampler

    by_thread: Counter[str] = Counter()
    for thread, _ours, _inner, count in rows:
        by_thread[thread] += count
    print("  ".join(f"{name} {sampler.seconds(count):.1f} s" for name, count in by_thread.most_common()))
    for thread, ours, inner, count in rows[:25]:
        print(f"{sampler.seconds(count):7.2f} s  {thread:10} {ours:44} {inner}")


if __name__ == "__main__":
    main()
