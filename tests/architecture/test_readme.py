"""What the README tells the reader to type exists, and is what is run before a change is taken."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_make_command_in_the_readme_is_a_target() -> None:
    commands = make_commands((ROOT / "README.md").read_text())

    assert {"demo", "test", "check"} <= commands <= targets()


def test_every_target_says_what_it_does() -> None:
    described = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert described == targets()


def test_a_change_is_checked_by_the_commands_of_the_readme() -> None:
    run = set(re.findall(r"^make (\w+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))

    assert run == {"test", "check"}


def test_commands_are_found_in_code_and_not_in_prose() -> None:
    text = "This will make sense.\n`make demo` and `PORT=1 make test`\n```\nmake check\n```\n\n    make format  # x\n"

    assert make_commands(text) == {"demo", "test", "check", "format"}


def make_commands(markdown: str) -> set[str]:
    code = re.findall(r"(?s)```.*?```|`[^`\n]+`|(?m:^ {4}[^\n]*)", markdown)
    return {command for span in code for command in re.findall(r"\bmake ([a-z]+)", span)}


def targets() -> set[str]:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    return set(phony[1].split()) - {"always"}
