"""How PostgreSQL carries out the named statements of claim, renewal, take-over and recording, with real parameters."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection, transaction

from accounts.sql import Queries
from benchmarks import rig
from workers import claims, outcomes
from workers.connectors.answers import Receipt, Uncertain
from workers.performance import report_of

_WORKER = "bench@plans"
_TOGETHER = 50


def explain(original: str) -> dict[str, str]:
    """{statement: its plan, as it ran} for one of each in a copy of a database with due operations."""
    rig.copy_database(original, "bench_plans")
    with rig.at("bench_plans"):
        _one_of_each()  # so that what is explained is not the first of its kind
        with _explained() as plans:
            _one_of_each()
    return plans


def _one_of_each() -> None:
    claimed = claims.claim(worker=_WORKER, most=_TOGETHER, after=0, lease=0.001)
    claims_renewed = [(each.order_id, each.token) for each in claimed.grants[:16]]
    from ledger.claims import renew

    renew(claims_renewed, worker=_WORKER, lease=0.001)
    answer: Any
    half = len(claimed.grants) // 2
    for number, grants in enumerate((claimed.grants[:half], claimed.grants[half:])):
        answer = Uncertain("not heard", wait=0.0) if number else None
        outcomes.record(
            [
                report_of(each, answer or Receipt(each.key, "done"), sent=True, lookups=0, worker=_WORKER)
                for each in grants
            ]
        )
    again = claims.take_over(worker=_WORKER, most=16, lease=30.0)
    outcomes.record(
        [report_of(each, Receipt(each.key, "done"), sent=False, lookups=1, worker=_WORKER) for each in again]
    )


_SETTING = "find_by_index"


@contextmanager
def _explained() -> Iterator[dict[str, str]]:
    plans: dict[str, str] = {}
    ask = Queries.rows

    def explained(queries: Queries, name: str, **parameters: Any) -> list[Any]:
        if name not in plans and name != _SETTING:
            plans[name] = _plan(dict(queries)[name], parameters)
        return ask(queries, name, **parameters)

    Queries.rows = explained  # type: ignore[method-assign,assignment]
    try:
        yield plans
    finally:
        Queries.rows = ask  # type: ignore[method-assign]


class _Undo(Exception):
    """What was explained is done again for real."""


def _plan(statement: str, parameters: dict[str, Any]) -> str:
    text = ""
    try:
        with transaction.atomic(), psycopg.Cursor(connection.connection) as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS) {statement}", parameters)
            text = "\n".join(line for (line,) in cursor.fetchall())
            raise _Undo
    except _Undo:
        return text
