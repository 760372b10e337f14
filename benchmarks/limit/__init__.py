"""The limit: the least SQL that still does the protocol, run by pgbench. What it counts is checked against the rows."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks import rig
from config.embedded import postgres

FOLDER = Path(__file__).parent
_DATABASE = "bench_limit"


@dataclass(frozen=True, slots=True)
class Script:
    """A script, with the clients it runs best with and the operations it does at a time."""

    name: str
    clients: int
    together: int
    most_per_second: int
    """More than any machine we know does: so many rows there have to be."""


SCRIPTS = (
    Script("one", clients=8, together=1, most_per_second=15_000),
    Script("one_own", clients=8, together=1, most_per_second=25_000),
    Script("batch", clients=2, together=50, most_per_second=150_000),
    Script("batch_own", clients=2, together=50, most_per_second=200_000),
)

_TRANSACTIONS = re.compile(r"number of transactions actually processed: (\d+)")
_TPS = re.compile(r"^tps = ([0-9.]+) \(without initial connection time\)", re.MULTILINE)


class NotDone(RuntimeError):
    """The rows do not say what pgbench counted: the script ran out of rows, or did nothing."""


def run(script: Script, *, seconds: int) -> float:
    """Operations a second, on a fresh schema with more rows than will be used. Raises NotDone."""
    rig.run_sql(
        "postgres", f'DROP DATABASE IF EXISTS "{_DATABASE}" WITH (FORCE)', f'CREATE DATABASE "{_DATABASE}"'
    )
    rows = script.most_per_second * seconds
    _tool("psql", "-q", "-v", "ON_ERROR_STOP=1", "-v", f"rows={rows}", "-f", str(FOLDER / "schema.sql"))
    said = _tool(
        *("pgbench", "-n", "-M", "prepared", "-c", str(script.clients), "-j", "2", "-T", str(seconds)),
        *("-D", f"clients={script.clients}", "-D", "i=-1", "-f", str(FOLDER / f"{script.name}.sql")),
    )
    transactions, tps = _TRANSACTIONS.search(said), _TPS.search(said)
    assert transactions is not None and tps is not None, said
    _check(int(transactions[1]) * script.together, said)
    return float(tps[1]) * script.together


def _tool(program: str, *arguments: str) -> str:
    command = [str(postgres.programs() / program), *arguments, "-d", rig.url(_DATABASE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotDone(f"{program}: {done.stderr}")
    return done.stdout


def _check(counted: int, said: str) -> None:
    ((done, operations, closed),) = rig.run_sql(
        _DATABASE,
        "SELECT (SELECT count(*) FROM cases WHERE state = 3), (SELECT count(*) FROM operation WHERE state = 2),"
        " (SELECT count(*) FROM attempt WHERE ended_at IS NOT NULL)",
    )
    if not counted == done == operations == closed:
        raise NotDone(f"pgbench counted {counted}, the rows say {done}, {operations}, {closed}.\n{said}")
