"""One durable PostgreSQL for a run of the benchmarks, a fresh database for each measurement, and our worker processes.

Importing this module points the settings at that server, so it comes before everything that reads them.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from config.embedded import postgres

REPOSITORY = Path(__file__).resolve().parent.parent
OUTPUT = REPOSITORY / "var"
FOLDER = OUTPUT / "bench"
"""Database, queue and logs; thrown away by the next run."""
POSTGRES = FOLDER / "postgres"

os.environ["VAR_DIR"] = str(FOLDER)
os.environ["BROKER_DIR"] = str(FOLDER / "broker")
os.environ["DATABASE_URL"] = postgres.url(POSTGRES, "countersign")
os.environ["REFUND_LEDGER_URL"] = postgres.url(POSTGRES, "refund_ledger")
os.environ.setdefault("SANDBOX_PORT", "8190")
os.environ["SECRET_KEY"] = "only-for-benchmarks-" + "0123456789" * 5
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
os.environ["LOG_LEVEL"] = os.environ.get("LOG_LEVEL", "INFO")

PATIENCE = 120.0
"""Seconds for what must come before a measurement is given up."""
_POLL = 0.05


def make_folder() -> None:
    """Begins with an empty folder."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)


def remove_data() -> None:
    """Gives the disk back; the logs stay."""
    shutil.rmtree(POSTGRES, ignore_errors=True)


def drop_database(database: str) -> None:
    """Takes a database away that nothing is copied from any more."""
    run_sql("postgres", f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')


def prepare(server: postgres.Server) -> None:
    """The databases that settings name, the second with what an owned sink needs."""
    from workers.connectors import owned_ledger  # needs Django's settings

    server.create_database("countersign")
    server.create_database("refund_ledger")
    with psycopg.connect(url("refund_ledger")) as own:
        own.execute(owned_ledger.SCHEMA.read_bytes())


def empty_own_ledger() -> None:
    """Forgets the effects of an earlier measurement."""
    run_sql("refund_ledger", "TRUNCATE countersign.refund, countersign.effect, countersign.fence")


def url(database: str) -> str:
    """The address of a database of this run."""
    return postgres.url(POSTGRES, database)


def run_sql(database: str, *statements: str) -> list[Any]:
    """Runs the statements in autocommit; returns the rows of the last one."""
    with psycopg.connect(url(database), autocommit=True) as server:
        rows: list[Any] = []
        for statement in statements:
            cursor = server.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
        return rows


def copy_database(original: str, copy: str) -> None:
    """Makes a database anew as a copy of another one that nobody is connected to."""
    run_sql(
        "postgres",
        f'DROP DATABASE IF EXISTS "{copy}" WITH (FORCE)',
        f'CREATE DATABASE "{copy}" TEMPLATE "{original}" STRATEGY FILE_COPY',
        "CHECKPOINT",
    )


@contextmanager
def at(database: str) -> Iterator[None]:
    """Points Django's own connection at a database of this run."""
    from django.db import connection

    before = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = database
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before


def wait_for(what: str, look: Any, *, patience: float = PATIENCE) -> None:
    """Returns once it is so. Raises TimeoutError."""
    deadline = time.monotonic() + patience
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{patience:g} seconds were not enough for {what}.")
        time.sleep(_POLL)


# What was written to the log of the database.


def lsn() -> str:
    """Where the write-ahead log is now."""
    return str(run_sql("postgres", "SELECT pg_current_wal_flush_lsn()")[0][0])


_TOTAL = re.compile(r"^Total\s+(\d+)\s+(\d+) \[.*?\]\s+(\d+) \[", re.MULTILINE)
_COMMITS = re.compile(r"^Transaction/COMMIT\s+(\d+) ", re.MULTILINE)


def written(since: str, until: str) -> tuple[int, int]:
    """(bytes without full-page images, commits) of the log between two places."""
    text = wal_statistics(since, until)
    total, commits = _TOTAL.search(text), _COMMITS.search(text)
    assert total is not None, text
    return int(total[2]), int(commits[1]) if commits else 0


def wal_statistics(since: str, until: str) -> str:
    """What pg_waldump says of the log between two places, by kind of record."""
    program = [str(postgres.programs() / "pg_waldump"), "--stats=record", "--path", str(POSTGRES / "pg_wal")]
    done = subprocess.run(
        [*program, "--start", since, "--end", until], capture_output=True, text=True, check=True
    )
    return done.stdout


def broker() -> str:
    """Which broker the run uses."""
    return urlsplit(os.environ.get("BROKER_URL", "embedded://")).scheme
