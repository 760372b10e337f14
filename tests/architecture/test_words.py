"""No file speaks of the machine it was written on, or of where its packages came from."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# One letter of each is in brackets, so that this file passes its own test.
FORBIDDEN = re.compile(
    r"""
      (?<![\w.-]) / ([w]ork | [r]oot | [f]arm | [h]ome/\w+ | [U]sers/\w+) /
    | \.\./[s]hared
    | --(extra-)?[i]ndex-url
    | ([p]ypi | [n]pmjs | [p]ythonhosted) \. (org | com)
    | "[r]esolved":\ *"http
    | \b[r]egistry\ *=\ *['"]?http
    | \b([Ff]irst | [Ss]econd)\ [a]rticle\b
    """,
    re.VERBOSE,
)
# Written backwards, for the same reason.
LINES = ["seton/krow/ ees", ')"x/toor/"(nepo', "ngised/derahs/..", "x//:ptth lru-xedni--", "elpmis/gro.ipyp"]


def test_no_file_speaks_of_its_origin() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in our_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if FORBIDDEN.search(line)
    ]

    assert found == []


@pytest.mark.parametrize("line", [line[::-1] for line in LINES])
def test_a_line_that_does_is_found(line: str) -> None:
    assert FORBIDDEN.search(line)


@pytest.mark.parametrize(
    "line", ["--no-emit-index-url", "a worker/farm/house", "var/work/x", "registry = dict()"]
)
def test_a_line_that_does_not_is_not(line: str) -> None:
    assert not FORBIDDEN.search(line)


def our_files() -> list[Path]:
    """What is committed, or would be: everything that git does not ignore."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = filter(None, listing.stdout.split("\0"))
    return [path for name in names if (path := ROOT / name).is_file()]
