"""Every row of the matrix, as pytest carries it out for `python -m tests.evidence`. Not part of the test run."""

import json
from collections.abc import Callable

import pytest

from tests.evidence.rows import Row, as_json
from tests.evidence.scenarios import ROWS

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(("scenario", "sink"), ROWS, ids=[f"{name} / {sink}" for name, sink in ROWS])
def test_row(
    row_of: Callable[[str, str], Row],
    record_property: Callable[[str, object], None],
    scenario: str,
    sink: str,
) -> None:
    record_property("row", json.dumps(as_json(row_of(scenario, sink))))
