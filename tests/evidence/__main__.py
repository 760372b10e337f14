"""python -m tests.evidence [--only WORDS] [--lanes 3] [--to PATH]: carries the matrix out, writes it, and judges it."""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
MATRIX = Path(__file__).with_name("matrix.py")
_VAR = Path(os.environ.get("VAR_DIR", REPOSITORY / "var"))  # now: the run sets another one for itself


class Rows:
    """Gathers what the lanes report, in the order in which it comes."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.failed: dict[str, str] = {}
        """What pytest calls a row that it could not carry out: why."""
        self.trouble: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A row comes with the test that carried it out; anything that failed around it is trouble."""
        if report.failed:
            self.failed[report.nodeid.partition("[")[2].rstrip("]")] = f"{report.when} failed"
            self.trouble.append(f"{report.nodeid} ({report.when}): {report.longreprtext[-2000:]}")
        if report.when == "call":
            told = dict(report.user_properties)
            self.found += [str(told["row"])] if "row" in told else []
            self.trouble += [str(told["account"])] if "account" in told else []


def main() -> int:
    """0 where every row is as expected, 1 where one is not or the run did not come to its end."""
    options = _options()
    began, date = time.monotonic(), datetime.now(UTC)
    rows, folder = Rows(), Path(tempfile.mkdtemp(prefix="countersign-evidence-"))
    try:
        code = pytest.main(
            [
                str(MATRIX),
                f"--rootdir={REPOSITORY}",
                f"--basetemp={folder / 'pytest'}",
                "-n",
                str(options.lanes),
                "-q",
                "--timeout=300",  # of a machine that has other things to do, too
                "--no-header",
                *(["-k", options.only] if options.only else []),
            ],
            plugins=[rows],
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    whole, seconds = not options.only, time.monotonic() - began
    to = options.to or _VAR / ("evidence.json" if whole else "evidence-part.json")
    return report(rows, to, whole=whole, complete=code == 0, date=date, seconds=seconds)


def report(found: Rows, to: Path, *, whole: bool, complete: bool, date: datetime, seconds: float) -> int:
    """Writes and prints the rows; returns the command's exit code. Of a ``whole`` run no row may be missing."""
    # Only now: the settings are read when these are imported, and pytest has said which.
    from tests.evidence import rows
    from tests.evidence.scenarios import ROWS, SCENARIOS
    from tests.evidence.sinks import SINKS

    seen = {(row.scenario, row.sink): row for row in (rows.Row(**json.loads(text)) for text in found.found)}
    for name, sink in ROWS:
        why = found.failed.get(f"{name} / {sink}")
        if why or (whole and (name, sink) not in seen):
            expected = SCENARIOS[name].expected[sink]
            why = why or "it was not carried out"
            seen[name, sink] = rows.Row.broken(name, sink, why=why, expected=expected)
    shown = [seen[each] for each in ROWS if each in seen]
    classes = {name: entry.enforcement.value for name, entry in SINKS.items()}
    rows.write(to, shown, date=date.isoformat(timespec="seconds"), seconds=seconds, sinks=classes)
    say = sys.stdout.write
    say(f"\n{rows.table(shown) if shown else 'no row was carried out'}\n")
    for trouble in found.trouble:
        say(f"TROUBLE {trouble}\n")
    say(f"{seconds:.0f} s, written to {to}\n")
    return 0 if rows.ok(shown, complete=complete) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.evidence", description="The release evidence.")
    parser.add_argument("--only", default="", help="only rows whose name matches this, as pytest's -k does")
    parser.add_argument("--lanes", type=int, default=3, help="rows that are carried out at once")
    parser.add_argument(
        "--to", type=Path, help="where the result is written (var/evidence.json; a part elsewhere)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
