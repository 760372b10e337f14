"""The sandbox's memory: one SQLite file, one connection, one transaction at a time."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS charges (
    id       TEXT PRIMARY KEY,
    currency TEXT NOT NULL,
    amount   INTEGER NOT NULL,
    refunded INTEGER NOT NULL DEFAULT 0,
    CONSTRAINT never_refunded_beyond_its_amount CHECK (refunded BETWEEN 0 AND amount)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS refunds (
    sequence        INTEGER PRIMARY KEY,
    id              TEXT NOT NULL UNIQUE,
    idempotency_key TEXT,
    charge          TEXT NOT NULL,
    payment_intent  TEXT,
    amount          INTEGER NOT NULL,
    currency        TEXT NOT NULL,
    reason          TEXT,
    metadata        TEXT NOT NULL,
    parameters      TEXT NOT NULL,
    created         REAL NOT NULL,
    CONSTRAINT refunds_something CHECK (amount > 0)
) STRICT;
CREATE INDEX IF NOT EXISTS refunds_by_charge ON refunds (charge);
CREATE INDEX IF NOT EXISTS refunds_by_payment_intent ON refunds (payment_intent)
    WHERE payment_intent IS NOT NULL;

CREATE TABLE IF NOT EXISTS effects (
    sequence        INTEGER PRIMARY KEY,
    id              TEXT NOT NULL UNIQUE,
    kind            TEXT NOT NULL,
    idempotency_key TEXT,
    charge          TEXT NOT NULL,
    once            TEXT,
    parameters      TEXT NOT NULL,
    created         REAL NOT NULL,
    CONSTRAINT what_happens_once UNIQUE (kind, once)
) STRICT;
CREATE INDEX IF NOT EXISTS effects_by_charge ON effects (kind, charge);
CREATE INDEX IF NOT EXISTS effects_by_key ON effects (kind, idempotency_key);

CREATE TABLE IF NOT EXISTS answers (
    idempotency_key TEXT PRIMARY KEY,
    path            TEXT NOT NULL,
    parameters      TEXT NOT NULL,
    request_id      TEXT NOT NULL,
    status          INTEGER NOT NULL,
    body            TEXT NOT NULL,
    headers         TEXT NOT NULL,
    kept            REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS arrivals (
    sequence        INTEGER PRIMARY KEY,
    method          TEXT NOT NULL,
    path            TEXT NOT NULL,
    idempotency_key TEXT,
    charge          TEXT,
    parameters      TEXT,
    arrived         REAL NOT NULL,
    status          INTEGER
) STRICT;
"""


class Store:
    """Durable against SIGKILL: what `transaction` has left is in the operating system's hands.

    WAL with synchronous=NORMAL writes each commit to the file before COMMIT returns and leaves the fsync
    to checkpoints; only a crash of the whole machine could lose the last ones, and a sandbox accepts that.
    The file is locked for this process alone: the keys in flight live in memory, so a second process on
    the same file could carry out one key twice.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=0.5, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = NORMAL"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.executescript(SCHEMA)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Everything inside happens, or nothing does."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a COMMIT that failed for good has ended it already
                self._db.execute("ROLLBACK")
            raise

    def write(self, statement: str, values: Sequence[object]) -> int:
        """One statement as a transaction of its own; answer the number of the row it inserted."""
        return self._db.execute(statement, values).lastrowid or 0

    def rows(self, query: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[sqlite3.Row]:
        return self._db.execute(query, values).fetchall()

    def close(self) -> None:
        self._db.close()
