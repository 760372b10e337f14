"""Statements with lists: what is written as an array comes back as it was."""

from pathlib import Path

import pytest
from django.db import DataError

from accounts.sql import Queries

HOSTILE = ['a"b', "back\\slash", "{1,2}", "NULL", "", "null", " ", "é\n\t", "','", None, "\U0001f600"]


@pytest.fixture
def echo(tmp_path: Path) -> Queries:
    path = tmp_path / "queries.sql"
    path.write_text(
        "-- name: echo\nSELECT * FROM unnest(%(texts)s::text[], %(numbers)s::bigint[]) AS it (text, number);\n"
    )
    return Queries(path)


def test_texts_come_back_as_they_were(db: None, echo: Queries) -> None:
    rows = echo.rows("echo", texts=HOSTILE, numbers=list(range(len(HOSTILE))))
    assert [row.text for row in rows] == HOSTILE
    assert [row.number for row in rows] == list(range(len(HOSTILE)))


def test_an_empty_list_is_an_empty_array(db: None, echo: Queries) -> None:
    assert echo.rows("echo", texts=[], numbers=[]) == []


def test_a_text_that_postgresql_cannot_hold_is_an_error_and_not_cut_short(db: None, echo: Queries) -> None:
    with pytest.raises(DataError):
        echo.rows("echo", texts=["a\x00b"], numbers=[1])
