"""Runs the DBOS workflows, in their own environment, and checks in DBOS's tables that all of them are done."""

import subprocess
from urllib.parse import urlsplit

from benchmarks import rig

PYTHON = rig.REPOSITORY / ".venv-bench" / "bin" / "python"
_DATABASE = "bench_dbos"
_IN_FLIGHT = 16
_DONE = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"


def is_installed() -> bool:
    """Whether ``make bench`` has made the environment that has DBOS."""
    return PYTHON.exists()


def run(*, count: int) -> float:
    """Workflows completed in a second, on a fresh database."""
    rig.run_sql(
        "postgres", f'DROP DATABASE IF EXISTS "{_DATABASE}" WITH (FORCE)', f'CREATE DATABASE "{_DATABASE}"'
    )
    url = urlsplit(rig.url(_DATABASE))._replace(scheme="postgresql+psycopg").geturl()
    command = [str(PYTHON), str(rig.REPOSITORY / "benchmarks" / "dbos_workflows.py"), url, str(count)]
    done = subprocess.run(
        [*command, str(_IN_FLIGHT)], capture_output=True, text=True, check=False, cwd=rig.FOLDER
    )
    if done.returncode:
        raise RuntimeError(f"DBOS: {done.stderr[-2000:]}")
    ((found,),) = rig.run_sql(_DATABASE, _DONE)
    if found < count:
        raise RuntimeError(f"{count} workflows were run, {found} are done.")
    return float(done.stdout.split()[-1])
