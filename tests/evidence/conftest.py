"""The matrix' fixtures: sandboxes and own ledgers for the whole run, and what carries one row out."""

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.test import override_settings

from ledger.models import Attempt
from tests.crashes.conftest import _server_address, _settings, broker, further_server, own_server, stage
from tests.crashes.gate import Gate
from tests.crashes.stage import OwnLedger, Sink, Stage
from tests.databases import database_url
from tests.evidence.rows import Row
from tests.evidence.scenarios import SCENARIOS, Scenario
from tests.evidence.scene import TIMES, Scene
from tests.evidence.sinks import SINKS, Places
from tests.sandbox.conftest import SandboxProcess
from workers.connectors import owned_ledger

__all__ = ["broker", "further_server", "own_server", "stage"]

RowOf = Callable[..., Row]
_SECRET = "whsec_for_the_evidence"


@pytest.fixture(scope="session")
def sandboxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bool], SandboxProcess]]:
    """One that keeps keys and one that ignores them; each starts when it is first asked for."""
    with ExitStack() as ends:

        @cache
        def sandbox(keyless: bool) -> SandboxProcess:
            options = ["--mail-port", "0", *(["--ignore-keys"] if keyless else [])]
            folder = tmp_path_factory.mktemp("sandbox")
            return ends.enter_context(SandboxProcess(folder / "sandbox.sqlite3", *options))

        yield sandbox


@pytest.fixture(scope="session")
def own_databases(django_db_setup: None) -> Iterator[Callable[[str], str]]:
    """The address of a database with this schema, made when it is first asked for."""
    with ExitStack() as ends:

        @cache
        def database(schema: str) -> str:
            return ends.enter_context(_database(schema))

        yield database


@contextmanager
def _database(schema: str) -> Iterator[str]:
    name = f"own_ledger_{uuid4().hex[:8]}"
    with psycopg.connect(database_url("postgres"), autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
    url = database_url(name)
    with psycopg.connect(url) as own:
        own.execute(schema.encode())
    yield url
    with psycopg.connect(database_url("postgres"), autocommit=True) as server:
        server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def row_of(
    request: pytest.FixtureRequest,
    sandboxes: Callable[[bool], SandboxProcess],
    own_databases: Callable[[str], str],
    record_property: Callable[[str, object], None],
) -> RowOf:
    """Carries one scenario out at one sink, and says what was seen. It does not raise: what breaks is a row, too."""

    def row(name: str, sink: str, *, times: Mapping[str, str] = TIMES) -> Row:
        scenario = SCENARIOS[name]
        expected = scenario.expected[sink]
        with ExitStack() as ends:
            try:
                places = Places(
                    sandboxes(scenario.keyless), lambda: _own_ledger(own_databases(_schema(scenario)))
                )
                made = SINKS[sink].make(places)
                ends.callback(made.gate.close)
                scene = _scene(request, scenario, made, ends)
                scene.stage.usual, scene.stage.patient = times, {}
                seen = scene.seen(scenario.act(scene))
            # A time-out of pytest is no Exception. Whatever broke, the row did not hold.
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001
                record_property("account", f"{name} / {sink}\n{traceback.format_exc()}\n{_account()}")
                return Row.broken(name, sink, why=f"{type(error).__name__}: {error}", expected=expected)
        return Row.of(name, sink, seen=seen, expected=expected)

    return row


def _account() -> str:
    """What the ledger says of every attempt, for whoever has to find out why a row broke."""
    shown = Attempt.objects.order_by("pk").values_list(
        "operation_id", "number", "worker", "outcome", "sent", "note"
    )
    return "\n".join(map(repr, shown))


def _schema(scenario: Scenario) -> str:
    text = owned_ledger.SCHEMA.read_text(encoding="utf-8")
    return scenario.schema(text) if scenario.schema else text


def _own_ledger(url: str) -> OwnLedger:
    with psycopg.connect(url) as own:
        own.execute("TRUNCATE countersign.refund, countersign.effect, countersign.fence")
    gate = Gate(_server_address())
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    gated = f"postgresql://{_settings()['USER']}@127.0.0.1:{gate.port}/{name}?sslmode=disable"
    return OwnLedger(url, gated, gate)


def _scene(request: pytest.FixtureRequest, scenario: Scenario, sink: Sink, ends: ExitStack) -> Scene:
    if scenario.restarts:
        return _on_its_own_server(request, sink, ends)
    stage: Stage = request.getfixturevalue("stage")
    hook = _hook(request, ends) if scenario.hears else None
    return Scene(stage, sink, ends, hook=hook)


def _on_its_own_server(request: pytest.FixtureRequest, sink: Sink, ends: ExitStack) -> Scene:
    request.getfixturevalue("transactional_db")
    server = request.getfixturevalue("own_server")
    bell = request.getfixturevalue("broker")
    bell.empty()
    folder: Path = request.getfixturevalue("tmp_path")
    stage = Stage(folder, server.url("restarted"), bell)
    ends.callback(stage.end)
    return Scene(stage, sink, ends, server=server)


def _hook(request: pytest.FixtureRequest, ends: ExitStack) -> Callable[[str], Any]:
    url = request.getfixturevalue("live_server").url
    ends.enter_context(override_settings(STRIPE_WEBHOOK_SECRET=_SECRET))
    return lambda path: {"url": f"{url}{path}", "secret": _SECRET}
