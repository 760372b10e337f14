"""One map from errors to statuses, each explained at its address; and what is said when something of ours is broken."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.exceptions import DisallowedHost, PermissionDenied
from django.db import OperationalError, connection
from django.http import Http404
from django.test import Client, RequestFactory

from approvals import errors as refusals
from approvals.api import errors as requests
from approvals.models import Case, Proposal, Revision, Vote
from config import problems
from config.problems import PROBLEMS, problem_of
from ledger.models import Operation
from tests.api.conftest import by_key, signed_in
from tests.worlds import new_world

DOCS = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
NAMES = {problem.name for problem in [*PROBLEMS.values(), problems._BROKEN]}


def _leaves(kind: type[Exception]) -> list[type[Exception]]:
    below = kind.__subclasses__()
    return [leaf for each in below for leaf in _leaves(each)] if below else [kind]


@pytest.mark.parametrize("error", [*_leaves(refusals.Refusal), *_leaves(requests.RequestRefused)])
def test_every_refusal_has_a_status_and_says_what_to_do(error: type[Exception]) -> None:
    problem = problem_of(error)

    assert problem is not None
    assert 400 <= problem.status < 500
    assert error.__doc__
    assert error.__doc__.endswith(".")


def test_every_problem_is_explained_and_nothing_else_is() -> None:
    headings = re.findall("^## (.+)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(headings) == sorted(NAMES)
    assert len(headings) == len(set(headings))


def test_the_page_says_the_status_of_each() -> None:
    text = DOCS.read_text(encoding="utf-8")

    for problem in PROBLEMS.values():
        assert text.split(f"## {problem.name}\n\n")[1].startswith(f"{problem.status}. ")


def test_a_problems_type_leads_to_its_section(db: None) -> None:
    page = Client().get("/docs/errors")

    assert page.status_code == 200
    text = page.content.decode()
    for name in NAMES:
        assert f'id="{name}"' in text
    assert "<code>If-Match</code>" in text
    assert "`" not in text


def test_one_name_has_one_status() -> None:
    statuses = {(problem.name, problem.status) for problem in PROBLEMS.values()}

    assert len(statuses) == len({name for name, _status in statuses})


def test_an_error_that_is_not_known_has_no_status() -> None:
    assert problem_of(ValueError) is None
    assert problem_of(KeyError("x")) is None
    assert problem_of(refusals.StateForbids()) == PROBLEMS[refusals.StateForbids]


# Outside of any view.


@pytest.mark.parametrize(
    ("error", "status"), [(Http404(), 404), (PermissionDenied(), 403), (DisallowedHost(), 400)]
)
def test_pages_and_api_answer_the_same_error_each_in_their_own_way(error: Exception, status: int) -> None:
    handler = {404: problems.not_found, 403: problems.forbidden, 400: problems.bad_request}[status]

    machine = handler(RequestFactory().get("/api/v1/x"), error)
    person = handler(RequestFactory().get("/x"), error)

    assert (machine.status_code, machine["Content-Type"]) == (status, "application/problem+json")
    assert (person.status_code, person["Content-Type"]) == (status, "text/html; charset=utf-8")
    assert b"<h1>" in person.content


@pytest.mark.parametrize(("error", "status"), [(OperationalError("gone"), 503), (ZeroDivisionError(), 500)])
def test_a_fault_of_ours_is_answered_without_a_word_of_it(error: Exception, status: int) -> None:
    for path in ("/api/v1/cases", "/cases"):
        try:
            raise error
        except Exception:  # noqa: BLE001  as Django does it
            answer = problems.server_error(RequestFactory().get(path))
        assert answer.status_code == status
        assert b"gone" not in answer.content
        assert b"ZeroDivision" not in answer.content
        assert answer.headers.get("Retry-After") == ("5" if status == 503 else None)


def test_an_unknown_host_is_refused_in_json(db: None) -> None:
    answer = Client(raise_request_exception=False).get("/api/v1/cases", headers={"host": "elsewhere.example"})

    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")


# The database goes away.


@contextmanager
def cut_before(statement: str) -> Iterator[None]:
    """Ends our own connection on the server just before the first statement that begins so."""

    def execute(run: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        if sql.startswith(statement):
            _end_our_backend()
        return run(sql, parameters, many, context)

    with connection.execute_wrapper(execute):
        yield
    connection.close()


def _end_our_backend() -> None:
    address = connection.get_connection_params()
    ours = connection.connection.info.backend_pid
    with psycopg.connect(
        **{name: address[name] for name in ("dbname", "user", "host") if name in address}
    ) as other:
        other.execute("SELECT pg_terminate_backend(%s, 1000)", [ours])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("what", "statement"),
    [
        ("propose", "SELECT"),
        ("propose", 'INSERT INTO "approvals_revision"'),
        ("approve", 'INSERT INTO "ledger_operation"'),
        ("read", "SELECT"),
    ],
)
def test_a_database_that_goes_away_is_503_and_nothing_is_half_done(what: str, statement: str) -> None:
    world = new_world()
    agent, reviewer = by_key(world), signed_in(world, "reviewer")
    case = agent.propose()

    with cut_before(statement):
        answer = {
            "propose": lambda: agent.propose(reference="1843"),
            "approve": lambda: reviewer.decide(case),
            "read": lambda: agent.read(case),
        }[what]()

    assert (answer.status, answer.problem) == (503, "unavailable")
    assert int(answer.headers["Retry-After"]) > 0
    assert (Case.objects.count(), Proposal.objects.count(), Revision.objects.count()) == (1, 1, 1)
    assert (Vote.objects.count(), Operation.objects.count()) == (0, 0)
    assert agent.propose(reference="1843").status == 201
    assert reviewer.decide(case).status == 200
