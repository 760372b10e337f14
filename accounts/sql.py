"""Loads the named statements of an app's ``queries.sql`` and runs them on Django's connection."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection
from psycopg.rows import namedtuple_row

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Queries:
    """The statements of one file, by name: ``Queries(path).rows("due_resources", after=0, most=50)``."""

    def __init__(self, path: Path) -> None:
        parts = _NAME.split(path.read_text(encoding="utf-8"))
        self._statements = dict(zip(parts[1::2], parts[2::2], strict=True))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Every (name, SQL), for the tests that check what the statements touch."""
        return iter(self._statements.items())

    def rows(self, name: str, **parameters: Any) -> list[Any]:
        """Runs the statement; returns its rows as named tuples (no rows where it returns nothing).

        Bound and prepared by the server: planning these statements anew each time costs more than running them.
        """
        if connection.queries_logged:  # somebody wants to see what is asked, through Django's own cursor
            with connection.cursor() as logged:
                logged.cursor.row_factory = namedtuple_row
                logged.execute(self._statements[name], parameters)
                return _rows(logged.cursor)
        connection.ensure_connection()
        connection.validate_no_broken_transaction()
        plain = psycopg.Cursor(connection.connection, row_factory=namedtuple_row)
        with connection.wrap_database_errors, plain as cursor:
            written = {
                name: _array(value)
                if isinstance(value, list)
                else str(value)
                if type(value) is int
                else value
                for name, value in parameters.items()
            }
            cursor.execute(self._statements[name], written, prepare=True)
            return _rows(cursor)


def _rows(cursor: psycopg.Cursor[Any]) -> list[Any]:
    return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


def _array(values: list[Any]) -> str:
    """The list as PostgreSQL writes an array (documentation, 8.15.6); the statement says of what type it is.

    The driver's own way asks each element for its type, and a batch has a thousand of them.
    """
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
