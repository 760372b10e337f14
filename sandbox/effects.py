"""Effects that are no refunds: supplier payments, actions, mails. One table, so that all of them can be counted."""

import json
import secrets
import sqlite3
import time

from sandbox.moments import rfc3339
from sandbox.wire import to_json

Effect = dict[str, object]


def make(
    db: sqlite3.Connection,
    *,
    kind: str,
    prefix: str,
    key: str | None,
    subject: str,
    parameters: dict[str, object],
    once: str | None = None,
) -> sqlite3.Row:
    """Write an effect down; `once` is what it may happen once under. Raise IntegrityError where it has."""
    row: sqlite3.Row = db.execute(
        "INSERT INTO effects (id, kind, idempotency_key, charge, once, parameters, created)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING *",
        (f"{prefix}_{secrets.token_hex(12)}", kind, key, subject, once, to_json(parameters), time.time()),
    ).fetchone()
    return row


def shown(row: sqlite3.Row) -> Effect:
    """What the services answer of an effect: its parameters, and what they call it."""
    return {**json.loads(row["parameters"]), "id": row["id"], "created": rfc3339(row["created"])}
