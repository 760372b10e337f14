"""The peers' servers, one of each a module."""

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from tests.crashes.conftest import _server_address
from tests.databases import database_url
from tests.sandbox.conftest import SandboxProcess
from tests.workers.connectors import peers
from tests.workers.connectors.peers import MailServer, Peer
from workers.connectors import owned_ledger


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    with SandboxProcess(tmp_path_factory.mktemp("sandbox") / "sandbox.sqlite3") as process:
        yield process


@pytest.fixture(scope="module")
def mail_server() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def owned_url() -> Iterator[str]:
    name = f"owned_{uuid4().hex[:8]}"
    with psycopg.connect(database_url("postgres"), autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
        with psycopg.connect(database_url(name)) as own:
            own.execute(owned_ledger.SCHEMA.read_bytes())
        yield database_url(name)
        server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(peers.TOKEN, "sk_test_peer")


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    """The peer whose name is the parameter."""
    with _peer(request.param, request) as it:
        yield it


def _peer(name: str, request: pytest.FixtureRequest) -> Peer:
    if name == "owned_ledger":
        return peers.owned_ledger(request.getfixturevalue("owned_url"), _server_address())
    if name == "smtp_mail":
        return peers.smtp_mail(request.getfixturevalue("mail_server"))
    makers = {
        "stripe_refunds": peers.stripe_refunds,
        "http_action": peers.http_action,
        "supplier_invoices": peers.supplier_invoices,
    }
    return makers[name](request.getfixturevalue("sandbox"))
