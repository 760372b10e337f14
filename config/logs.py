"""How a log line is written: one line each, with keys, and never with what a proposal, a request or a receipt holds.

The words of an exception may quote any of these (a database's "Failing row contains …", a provider's message), so a
traceback is written with the classes, the places in the code and the codes of the errors. Words are kept only of
errors about connections and about names in the code itself, and only their first line.
"""

import logging
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import psycopg
from django.db import InterfaceError, OperationalError

ABOUT_CONNECTIONS = (OSError, OperationalError, InterfaceError, psycopg.OperationalError)
ABOUT_CODE = (NameError, ImportError, AttributeError)
_MOST_WORDS = 200
_CONTROLS = {number: f"\\x{number:02x}" for number in (*range(32), 127)}


class Line(logging.Formatter):
    """Time, level, logger, message; under it, indented, where an exception came from."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's own name
        """The line itself; whatever is in it, it stays one."""
        line = super().formatMessage(record)
        return line if line.isprintable() else line.translate(_CONTROLS)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """The chain of exceptions, the last one first, each with its places and without its words."""
        return "\n".join(f"  {line}" for each in _chain(ei[1]) for line in _told(each))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _told(error: BaseException) -> Iterator[str]:
    kind = type(error)
    yield f"{kind.__module__}.{kind.__qualname__}{_code(error)}{_words(error)}"
    yield from _places(error.__traceback__)


def _code(error: BaseException) -> str:
    """What a database or an HTTP library says in codes: which rule, which status."""
    if isinstance(error, psycopg.Error):
        rule = f" {error.diag.constraint_name}" if error.diag.constraint_name else ""
        return f" [{error.sqlstate or 'no code'}{rule}]"
    status = getattr(error, "http_status", None)
    return f" [{status}]" if isinstance(status, int) else ""


def _words(error: BaseException) -> str:
    if not isinstance(error, (*ABOUT_CONNECTIONS, *ABOUT_CODE)):
        return ""
    first = str(error).partition("\n")[0].translate(_CONTROLS)[:_MOST_WORDS]
    return f": {first}" if first else ""


def _places(trace: TracebackType | None) -> Iterator[str]:
    for frame in traceback.extract_tb(trace):
        yield f"  {frame.filename}:{frame.lineno} in {frame.name}"
