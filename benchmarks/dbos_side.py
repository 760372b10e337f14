"""Runs the DBOS workflows, in their own environment, and checks in DBOS's tables that all of them are done."""

import subprocess
from urllib.parse import urlsplit

from benchmarks import rig

PYTHON = rig.REPOSITORY / ".venv-bench" / "bin" / "python"
_DATABASE = "bench_dbos"
_WAYS = ((1, 16), (1, 64), (2, 32))
"""Processes, and workflows in flight in each; what counts is the best of them, as it is of our own processes."""
_DONE = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"


def is_installed() -> bool:
    """Whether ``make bench`` has made the environment that has DBOS."""
    return PYTHON.exists()


def run(*, count: int) -> float:
    """Workflows completed in a second, the best way of several, each on a fresh database."""
    return max(_run(count, processes, in_flight) for processes, in_flight in _WAYS)


def _run(count: int, processes: int, in_flight: int) -> float:
    rig.run_sql(
        "postgres", f'DROP DATABASE IF EXISTS "{_DATABASE}" WITH (FORCE)', f'CREATE DATABASE "{_DATABASE}"'
    )
    url = urlsplit(rig.url(_DATABASE))._replace(scheme="postgresql+psycopg").geturl()
    command = [
        str(PYTHON),
        str(rig.REPOSITORY / "benchmarks" / "dbos_workflows.py"),
        url,
        str(count),
        str(in_flight),
    ]
    pipe = subprocess.PIPE
    running = [
        subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=rig.FOLDER)
        for _ in range(processes)
    ]
    said = [each.communicate() for each in running]
    if any(each.returncode for each in running):
        raise RuntimeError(f"DBOS: {said[0][1][-2000:]}")
    ((found,),) = rig.run_sql(_DATABASE, _DONE)
    if found < count * processes:
        raise RuntimeError(f"{count * processes} workflows were run, {found} are done.")
    return sum(float(out.split()[-1]) for out, _errors in said)
