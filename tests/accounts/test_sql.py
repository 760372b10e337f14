"""Statements with lists: what is written as an array comes back as it was."""

from pathlib import Path

import pytest
from django.db import DataError, connection

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


def test_a_statement_is_planned_once_whatever_the_size_of_its_numbers(db: None, tmp_path: Path) -> None:
    path = tmp_path / "queries.sql"
    path.write_text("-- name: planned_once\nSELECT 7 AS planned_once WHERE %(number)s::bigint < 10;\n")
    queries = Queries(path)
    found = [queries.rows("planned_once", number=number) for number in (1, 2**20, 2**40)]
    assert [len(rows) for rows in found] == [1, 0, 0]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%%AS planned_once%%'"
        )
        assert cursor.fetchone() == (1,)
