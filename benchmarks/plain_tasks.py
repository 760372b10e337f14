"""What many would write first: a Celery task per operation that inserts its key, on conflict does nothing, and acts.

``celery -A benchmarks.plain_tasks worker`` with Celery's own defaults, on the broker the product uses.
"""

import os
from functools import cache
from pathlib import Path

import psycopg
from celery import Celery

from config.embedded import broker

app = Celery("plain", set_as_current=False)
_broker = os.environ.get("BROKER_URL", broker.URL)
_options = broker.transport_options(Path(os.environ["BROKER_DIR"])) if _broker == broker.URL else {}
app.conf.update(
    broker_url=_broker,
    broker_transport_options=_options,
    broker_connection_retry_on_startup=True,
    task_default_queue="plain",
    task_ignore_result=True,
)

SCHEMA = """
CREATE TABLE operation (
    key text PRIMARY KEY, reference text, done_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
URL = "BENCHMARK_PLAIN_URL"
"""In a worker's environment: the database with the table."""


@cache
def _connection() -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(os.environ[URL], autocommit=True)


@app.task(name="plain.execute")
def execute(key: str) -> None:
    """Takes the key, then does what has to be done: here nothing, so that nothing more is measured."""
    _connection().execute(
        "INSERT INTO operation (key, reference) VALUES (%s, %s) ON CONFLICT DO NOTHING", [key, f"ref_{key}"]
    )
