"""What the last run of the release evidence showed. Read from the file that it writes; nothing is judged anew here."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from approvals.console.entrance import Visitor, page

COMMAND = "make evidence"
_CONTROL = "control: "
_NAMES = {
    "committed": "committed",
    "outcome_unknown": "unknown",
    "failed_before_commit": "failed before commit",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One scenario at one sink: effects counted there, and what the ledger says."""

    sink: str
    effects: int
    state: str
    needs_person: bool
    expected: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One scenario; a cell for each sink, None where it does not apply. ``control``: it has to show two effects."""

    scenario: str
    control: bool
    cells: Sequence[tuple[str, Cell | None]]

    @property
    def ok(self) -> bool:
        """Whether every sink ended as expected."""
        return all(cell.ok for _, cell in self.cells if cell)


@dataclass(frozen=True, slots=True)
class Run:
    """A whole run. ``sinks`` are (name, enforcement class)."""

    date: datetime
    seconds: float
    machine: str
    versions: Sequence[tuple[str, str]]
    sinks: Sequence[tuple[str, str]]
    lines: Sequence[Line]
    controls: Sequence[Line]
    count: int
    wrong: int


@page
def evidence(request: HttpRequest, _visitor: Visitor) -> HttpResponse:
    """Crash points and faults by sink, with the effects that were counted there."""
    path = settings.VAR_DIR / "evidence.json"
    run = read(path)
    context = {"run": run, "command": COMMAND, "empty": _empty(path) if run is None else None}
    return render(request, "approvals/evidence.html", context)


def read(path: Path) -> Run | None:
    """The run that is written there; None where there is none, or none that can be read."""
    try:
        return _run(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _run(content: dict[str, Any]) -> Run:
    rows, sinks = content["rows"], sorted(content["sinks"].items())
    lines = [
        _line(name, rows, [sink for sink, _ in sinks])
        for name in dict.fromkeys(row["scenario"] for row in rows)
    ]
    return Run(
        date=datetime.fromisoformat(content["date"]),
        seconds=float(content["seconds"]),
        machine=str(content["machine"]),
        versions=[(str(name), str(version)) for name, version in content["versions"].items()],
        sinks=sinks,
        lines=[line for line in lines if not line.control],
        controls=[line for line in lines if line.control],
        count=len(rows),
        wrong=sum(not row["ok"] for row in rows),
    )


def _line(scenario: str, rows: Sequence[dict[str, Any]], sinks: Sequence[str]) -> Line:
    found = {row["sink"]: _cell(row) for row in rows if row["scenario"] == scenario}
    control = scenario.startswith(_CONTROL)
    name = scenario.removeprefix(_CONTROL)
    return Line(name[:1].upper() + name[1:], control, [(sink, found.get(sink)) for sink in sinks])


def _cell(row: dict[str, Any]) -> Cell:
    return Cell(
        sink=row["sink"],
        effects=int(row["effects"]),
        state=_NAMES.get(row["state"], str(row["state"])),
        needs_person=bool(row["needs_person"]),
        expected=str(row["expected"]),
        ok=bool(row["ok"]),
    )


def _empty(path: Path) -> dict[str, str]:
    if path.exists():
        return {
            "title": "The evidence cannot be read",
            "words": f"{path.name} is not what a run writes. Run {COMMAND} again.",
        }
    return {
        "title": "No evidence yet",
        "words": f"Nobody has run the matrix on this machine. {COMMAND} carries it out with real workers, in under"
        " five minutes, and this page shows what it counted.",
    }
