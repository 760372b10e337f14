"""SERIALIZABLE transactions, retried whole: a serialization failure may come at any statement, and at COMMIT.

PostgreSQL asks for exactly this (documentation, "Transaction Isolation", 13.2.3); a deadlock is another face of the
same race and is retried the same way.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg
from django.db import Error, connection, transaction

log = logging.getLogger(__name__)

MOST_TRIES = 8
_FIRST_PAUSE = 0.005
"""Seconds before the second try; doubled each time, with jitter, so that the winner can finish first."""
_RETRIED = ("40001", "40P01")

T = TypeVar("T")


class Exhausted(Exception):
    """Others kept changing the same rows. Nothing was written; try again later."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(self.__doc__)
        self.sqlstate = sqlstate


def run(work: Callable[[], T], *, retried: Callable[[str], None]) -> T:
    """Runs the work in a SERIALIZABLE transaction of its own, again from its beginning while others are in the way.

    ``retried`` is told the SQLSTATE of every failed try, after its rollback. Raises Exhausted after ``MOST_TRIES``.
    """
    sqlstate = ""
    for tries in range(MOST_TRIES):
        try:
            with transaction.atomic(durable=True):
                with connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
                return work()
        except Error as error:
            sqlstate = _sqlstate(error)
            if sqlstate not in _RETRIED:
                raise
        retried(sqlstate)
        time.sleep(_FIRST_PAUSE * 2**tries * random.uniform(0.5, 1.5))  # noqa: S311  spreads load
    raise Exhausted(sqlstate)


def _sqlstate(error: BaseException) -> str:
    """Of the first failure: a statement after it is refused with 25P02, which says nothing."""
    found, seen = "", {id(error)}
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, psycopg.Error) and cause.sqlstate:
            found = cause.sqlstate
        cause = cause.__cause__ or cause.__context__
        if cause is not None and id(cause) in seen:
            break
        seen.add(id(cause))
    return found
