"""Loads the named statements of an app's ``queries.sql`` and runs them on Django's connection."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from django.db import connection

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
        """Runs the statement; returns its rows as named tuples (no rows where it returns nothing)."""
        with connection.cursor() as cursor:
            cursor.execute(self._statements[name], parameters)
            if cursor.description is None:
                return []
            row = _row_type(name, tuple(column.name for column in cursor.description))
            return [row(*values) for values in cursor.fetchall()]


_row_types: dict[tuple[str, tuple[str, ...]], Any] = {}


def _row_type(name: str, columns: tuple[str, ...]) -> Any:
    if (name, columns) not in _row_types:
        _row_types[name, columns] = NamedTuple(name, [(column, Any) for column in columns])
    return _row_types[name, columns]
