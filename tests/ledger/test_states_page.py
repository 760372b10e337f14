"""docs/states.md is drawn from the declarations, is current, and has a row for every state."""

from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db.models import TextChoices

from approvals.models import Case
from approvals.states import CaseState
from ledger.machines import named_moves
from ledger.models import Operation
from ledger.states import OperationState

PAGE = settings.BASE_DIR / "docs" / "states.md"


def test_the_page_is_current() -> None:
    out = StringIO()
    call_command("draw_states", "--check", stdout=out)
    assert out.getvalue() == "states.md is current.\n"


@pytest.mark.parametrize(("title", "states"), [("Case", CaseState), ("Operation", OperationState)])
def test_every_state_has_a_row(title: str, states: type[TextChoices]) -> None:
    rows = [line.split("|") for line in section(title).splitlines() if line.startswith("| ")]
    shown = {cell.strip(" `") for row in rows for cell in row[1:3]}
    assert set(states.values) <= shown


@pytest.mark.parametrize(("title", "model"), [("Case", Case), ("Operation", Operation)])
def test_every_move_is_an_arrow_and_a_row_with_its_reason(
    title: str, model: type[Case] | type[Operation]
) -> None:
    text = section(title)
    for source, target, by in named_moves(model):
        assert f"\n    {source} --> {target}: {by}\n" in text
        assert f"\n| `{source}` | `{target}` | `{by}` | {getattr(model, by).__doc__} |\n" in text


def test_a_page_that_is_not_current_fails_the_check_and_says_what_to_run(tmp_path: Path) -> None:
    file = tmp_path / "states.md"
    file.write_text(PAGE.read_text().replace("not_started --> started: start\n", ""))

    with pytest.raises(CommandError, match=r"is not current.*Run `manage.py draw_states --write`"):
        call_command("draw_states", "--check", file=file)

    call_command("draw_states", "--write", file=file, stdout=StringIO())
    call_command("draw_states", "--check", file=file, stdout=StringIO())
    assert file.read_text() == PAGE.read_text()


def test_a_page_that_is_missing_fails_the_check(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"is missing. Run"):
        call_command("draw_states", "--check", file=tmp_path / "docs" / "states.md")


def test_without_an_option_the_page_is_printed_and_nothing_is_written(tmp_path: Path) -> None:
    out = StringIO()
    call_command("draw_states", file=tmp_path / "states.md", stdout=out)
    assert out.getvalue() == PAGE.read_text()
    assert not list(tmp_path.iterdir())


def section(title: str) -> str:
    """The part of the page under this heading."""
    return PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
