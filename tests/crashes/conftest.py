"""The stage's fixtures: a sandbox a module, a broker folder and an own-ledger database a test."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from config.embedded.postgres import Server
from ledger import tools
from tests.crashes.doorbell import Doorbell, doorbell
from tests.crashes.gate import Gate
from tests.crashes.stage import REPOSITORY, OwnLedger, Provider, Sink, Stage
from tests.databases import copy_to, database_url
from workers.connectors import owned_ledger


@pytest.fixture(scope="module")
def sandbox_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    database = tmp_path_factory.mktemp("sandbox") / "sandbox.sqlite3"
    process = subprocess.Popen(
        [sys.executable, "-m", "sandbox", "--port", "0", "--database", str(database)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None
    yield found[0]
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def provider(sandbox_url: str) -> Iterator[Provider]:
    host, port = sandbox_url.removeprefix("http://").split(":")
    gate = Gate((host, int(port)))
    yield Provider(sandbox_url, gate)
    gate.close()


@pytest.fixture(scope="module")
def own_database(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """A database beside the test database, with the schema an owned sink needs."""
    name = f"own_ledger_{uuid4().hex[:8]}"
    with psycopg.connect(database_url("postgres"), autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
        url = database_url(name)
        with psycopg.connect(url) as own:
            own.execute(owned_ledger.SCHEMA.read_bytes())
        yield url
        server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def own_ledger(own_database: str) -> Iterator[OwnLedger]:
    with psycopg.connect(own_database) as own:
        own.execute("TRUNCATE countersign.refund, countersign.effect, countersign.fence")
    name = psycopg.conninfo.conninfo_to_dict(own_database)["dbname"]
    gate = Gate(_server_address())
    gated = f"postgresql://{_settings()['USER']}@127.0.0.1:{gate.port}/{name}?sslmode=disable"
    yield OwnLedger(own_database, gated, gate)
    gate.close()


@pytest.fixture(params=["provider_key", "owned_write"])
def sink(request: pytest.FixtureRequest) -> Sink:
    """Each sink in turn."""
    name = {"provider_key": "provider", "owned_write": "own_ledger"}[request.param]
    found: Sink = request.getfixturevalue(name)
    return found


@pytest.fixture(scope="session")
def broker() -> Doorbell:
    """The broker of this run."""
    return doorbell()


@pytest.fixture
def stage(tmp_path: Path, transactional_db: None, broker: Doorbell) -> Iterator[Stage]:
    broker.empty()  # no message of an earlier test
    stage = Stage(tmp_path, database_url(connection.settings_dict["NAME"]), broker)
    yield stage
    stage.end()


@pytest.fixture(scope="session")
def further_server(django_db_setup: None) -> Iterator[Server]:
    """One more PostgreSQL, with a migrated database to copy."""
    # Not in pytest's own folder, which other runs close to the server's system user.
    folder = Path(tempfile.mkdtemp(prefix="restarted-", dir=settings.VAR_DIR))
    with Server(folder / "postgres") as server:
        server.create_database("migrated")
        copy_to(server.url("migrated"))
        yield server


@pytest.fixture
def own_server(further_server: Server) -> Iterator[Server]:
    """A PostgreSQL to be restarted, empty; this process speaks to it as to the test database."""
    server = further_server
    with psycopg.connect(server.url(), autocommit=True) as maker:
        maker.execute("DROP DATABASE IF EXISTS restarted WITH (FORCE)")
        maker.execute("CREATE DATABASE restarted TEMPLATE migrated")
    ours = dict(connection.settings_dict)
    connection.close()
    connection.settings_dict.update(
        {"NAME": "restarted", "HOST": str(server.directory), "USER": "postgres", "PORT": ""}
    )
    connection.settings_dict["OPTIONS"] = {
        name: value for name, value in ours["OPTIONS"].items() if name not in ("host", "port")
    }
    try:
        _forget_tool_versions()
        yield server
    finally:
        _forget_tool_versions()
        connection.close()
        connection.settings_dict.clear()
        connection.settings_dict.update(ours)


def _forget_tool_versions() -> None:
    """They are kept by their number, which is another one's in another database."""
    tools.version.cache_clear()
    tools._validator.cache_clear()


def _settings() -> dict[str, Any]:
    return {"USER": psycopg.conninfo.conninfo_to_dict(os.environ["DATABASE_URL"]).get("user")}


def _server_address() -> str | tuple[str, int]:
    given = psycopg.conninfo.conninfo_to_dict(os.environ["DATABASE_URL"])
    host, port = str(given["host"]), int(given.get("port") or 5432)
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)
