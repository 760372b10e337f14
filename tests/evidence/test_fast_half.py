"""The quick half of the evidence, its controls, and what the command makes of rows that are not as expected."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.test import override_settings

from tests.console.doors import at_the_console, words
from tests.crashes.stage import TIMES
from tests.evidence import rows
from tests.evidence.__main__ import Rows, report
from tests.evidence.rows import CONTROL, Expected, Row
from tests.evidence.scenarios import DONE, ROWS, SCENARIOS, TWO
from tests.evidence.sinks import SINKS
from tests.worlds import new_world

QUICK = [
    ("killed after the effect", "smtp_mail"),
    ("killed before the request arrives", "supplier_invoices"),
    ("fault error_after_commit", "http_action"),
    (f"{CONTROL}the sink ignores the key", "http_action"),
    (f"{CONTROL}the fence is ignored, too", "owned_ledger"),
]
"""Beside the crash tests, which have the other two sinks."""


@pytest.mark.parametrize(("scenario", "sink"), QUICK, ids=[f"{name} / {sink}" for name, sink in QUICK])
@pytest.mark.django_db(transaction=True)
def test_a_row_of_the_quick_half_ends_as_expected(
    row_of: Callable[..., Row], scenario: str, sink: str
) -> None:
    row = row_of(scenario, sink, times=TIMES)
    assert row.ok, row
    assert row.effects <= 1 or (scenario.startswith(CONTROL) and row.effects == 2)


def test_every_sink_meets_every_crash_point_and_every_protection_has_a_control() -> None:
    crash_points = [name for name in SCENARIOS if name.startswith("killed ")]
    assert len(crash_points) == 8
    assert {(name, sink) for name in crash_points for sink in SINKS} <= set(ROWS)
    controls = [each for each in SCENARIOS.values() if each.is_control]
    assert len(controls) == 3
    assert all(expected == TWO for each in controls for expected in each.expected.values())


def test_a_row_is_ok_only_where_effects_state_and_need_of_a_person_are_as_expected() -> None:
    def judged(scenario: str, seen: Expected, expected: Expected = DONE) -> bool:
        return Row.of(scenario, "smtp_mail", seen=seen, expected=expected).ok

    assert judged("killed", DONE)
    assert not judged("killed", Expected(2, "committed"))
    assert not judged("killed", Expected(0, "committed"))
    assert not judged("killed", Expected(1, "outcome_unknown"))
    assert not judged("killed", Expected(1, "committed", needs_person=True))
    assert judged(f"{CONTROL}no key", Expected(2, "committed"), TWO)
    assert not judged(f"{CONTROL}no key", DONE, TWO)


def test_a_run_proves_something_only_when_it_is_complete_and_every_row_is_ok() -> None:
    good = Row.of("killed", "smtp_mail", seen=DONE, expected=DONE)
    bad = Row.broken("killed", "smtp_mail", why="it never came", expected=DONE)
    assert rows.ok([good], complete=True)
    assert not rows.ok([good], complete=False)
    assert not rows.ok([good, bad], complete=True)
    assert not rows.ok([], complete=True)
    assert "1 of 2 rows ok" in rows.table([good, bad])
    assert "NOT OK  killed / smtp_mail: -1 effects, broken: it never came" in rows.table([good, bad])


def test_the_file_has_a_header_and_exactly_the_members_of_a_row(tmp_path: Path) -> None:
    path = tmp_path / "var" / "evidence.json"
    _write(path, Row.of("killed", "smtp_mail", seen=DONE, expected=DONE))
    content = json.loads(path.read_text())
    assert set(content) == {"date", "seconds", "versions", "machine", "sinks", "rows"}
    (row,) = content["rows"]
    assert set(row) == {"scenario", "sink", "effects", "state", "needs_person", "expected", "ok"}
    assert list(path.parent.iterdir()) == [path]


def test_the_command_ends_with_1_unless_every_row_is_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, sink = QUICK[0]
    expected = SCENARIOS[name].expected[sink]
    good = Row.of(name, sink, seen=expected, expected=expected)
    bad = Row.of(name, sink, seen=TWO, expected=expected)
    codes = [_code(tmp_path, [good]), _code(tmp_path, [good, bad]), _code(tmp_path, [])]
    assert codes == [0, 1, 1]
    assert _code(tmp_path, [good], complete=False) == 1
    assert _code(tmp_path, [good], failed={f"{name} / {sink}": "call failed"}) == 1
    assert _code(tmp_path, [good], whole=True) == 1
    written = json.loads((tmp_path / "evidence.json").read_text())["rows"]
    assert [(row["scenario"], row["sink"]) for row in written] == ROWS
    assert sum(row["ok"] for row in written) == 1
    assert "1 of 1 rows ok" in capsys.readouterr().out


def _code(
    folder: Path,
    shown: list[Row],
    *,
    complete: bool = True,
    whole: bool = False,
    failed: dict[str, str] | None = None,
) -> int:
    found = Rows()
    found.failed = failed or {}
    found.found = [json.dumps(rows.as_json(row)) for row in shown]
    return report(
        found, folder / "evidence.json", whole=whole, complete=complete, date=datetime.now(UTC), seconds=1.0
    )


@pytest.mark.django_db
def test_the_console_shows_what_the_last_run_counted_and_says_so_where_there_is_none(tmp_path: Path) -> None:
    reader = at_the_console(new_world(), "auditor")
    with override_settings(VAR_DIR=tmp_path):
        assert "No evidence yet" in words(reader.open("/evidence/"))
        assert "make evidence" in words(reader.open("/evidence/"))

        _write(
            tmp_path / "evidence.json",
            Row.of("killed after the effect", "smtp_mail", seen=DONE, expected=DONE),
            Row.of("fault decline", "smtp_mail", seen=DONE, expected=Expected(0, "failed_before_commit")),
            Row.of(f"{CONTROL}the sink ignores the key", "http_action", seen=TWO, expected=TWO),
        )
        shown = words(reader.open("/evidence/"))
        (tmp_path / "evidence.json").write_text('{"rows": 5}')
        assert "The evidence cannot be read" in words(reader.open("/evidence/"))
    assert "1 of 3 rows did not end as expected." in shown
    assert "Killed after the effect" in shown
    assert "expected 0 effects, failed_before_commit; was committed" in shown
    assert shown.index("Controls") < shown.index("The sink ignores the key") < shown.index("2 effects")


def _write(path: Path, *shown: Row) -> None:
    classes = {name: entry.enforcement.value for name, entry in SINKS.items()}
    rows.write(path, shown, date="2026-12-01T10:00:00+00:00", seconds=412.0, sinks=classes)
