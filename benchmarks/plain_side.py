"""Runs the plain Celery tasks: all are queued, then one worker with Celery's defaults works them off."""

import os
import sys

from benchmarks import drain, plain_tasks, rig
from config.embedded.processes import Program

_DATABASE = "bench_plain"
_RATE = """
SELECT count(*), extract(epoch FROM max(done_at) - min(done_at))::float8 FROM operation
"""


def run(*, count: int) -> float:
    """Tasks done in a second, on a fresh database: from the first insert to the last."""
    rig.run_sql(
        "postgres", f'DROP DATABASE IF EXISTS "{_DATABASE}" WITH (FORCE)', f'CREATE DATABASE "{_DATABASE}"'
    )
    rig.run_sql(_DATABASE, plain_tasks.SCHEMA)
    for number in range(count):
        plain_tasks.app.send_task("plain.execute", args=[f"key-{number}"], ignore_result=True)
    with drain.running(_worker()):
        rig.wait_for(f"{count} tasks", lambda: rig.run_sql(_DATABASE, _RATE)[0][0] == count)
    ((_count, seconds),) = rig.run_sql(_DATABASE, _RATE)
    return float((count - 1) / seconds)


def _worker() -> Program:
    options = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")
    return Program(
        name="plain",
        command=[
            *(sys.executable, "-m", "celery", "-A", "benchmarks.plain_tasks", "worker"),
            *("-Q", "plain", "-c", str(os.cpu_count() or 2), *options),
        ],
        directory=rig.REPOSITORY,
        environment={plain_tasks.URL: rig.url(_DATABASE)},
    )
