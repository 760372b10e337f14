"""The other services of the sandbox: supplier payments, actions, mail; each as a caller meets it on the wire."""

import json
import smtplib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.sandbox.conftest import SandboxProcess, eventually


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    database = tmp_path_factory.mktemp("services") / "sandbox.sqlite3"
    with SandboxProcess(database, "--mail-port", "0") as process:
        yield process


@pytest.fixture
def name() -> str:
    return f"it-{uuid4().hex}"


def pay(to: SandboxProcess, supplier: str, **changes: Any) -> httpx.Response:
    content = {"supplier": supplier, "invoice": "R-1", "amount": 1200, "currency": "EUR", **changes}
    return to.http.post("/payables", json=content)


def act(
    at: SandboxProcess, target: str, headers: dict[str, str] | None = None, **more: Any
) -> httpx.Response:
    return at.http.post("/actions", json={"target": target, **more}, headers=headers or {})


def test_an_invoice_is_taken_once_and_found_again(services: SandboxProcess, name: str) -> None:
    first, again = pay(services, name, memo="countersign:k1"), pay(services, name, amount=9)
    assert (first.status_code, again.status_code) == (201, 409)
    assert again.json()["error"]["code"] == "duplicate_invoice"
    (found,) = services.http.get("/payables", params={"supplier": name, "invoice": "R-1"}).json()["data"]
    assert found == first.json()
    (effect,) = services.effects(charge=name)
    assert (effect["kind"], effect["idempotency_key"]) == ("payable", "k1")


@pytest.mark.parametrize("changes", [{"amount": True}, {"amount": 0}, {"invoice": ""}, {"sum": 1}])
def test_a_payment_that_is_none_is_refused(services: SandboxProcess, name: str, changes: Any) -> None:
    assert pay(services, name, **changes).status_code in (400, 422)
    assert services.effects(charge=name) == []


def test_payments_are_listed_after_one(services: SandboxProcess, name: str) -> None:
    made = [pay(services, name, invoice=f"R-{number}").json()["id"] for number in range(3)]
    page: dict[str, str | int] = {"supplier": name, "limit": 2}
    first = services.http.get("/payables", params=page).json()["data"]
    rest = services.http.get("/payables", params={**page, "after": first[-1]["id"]}).json()["data"]
    assert [each["id"] for each in [*first, *rest]] == made


def test_an_action_is_done_once_per_key_at_the_version_it_names(services: SandboxProcess, name: str) -> None:
    key = {"Idempotency-Key": name}
    first, again = (act(services, name, {**key, "If-Match": '"0"'}) for _ in range(2))
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    assert first.json()["version"] == 1
    assert act(services, name, {"If-Match": '"0"'}).status_code == 412
    assert act(services, name, key, amount=2).status_code == 400
    assert services.http.get("/actions", params={"key": name}).json()["id"] == first.json()["id"]
    assert services.http.get("/actions", params={"key": f"{name}-no"}).status_code == 404
    assert len(services.effects(charge=name)) == 1


def test_a_fault_strikes_the_kind_it_names(services: SandboxProcess, name: str) -> None:
    services.order_fault("error_after_commit", charge=name, kind="action")
    assert pay(services, name).status_code == 201
    assert act(services, name).status_code == 500
    assert [each["kind"] for each in services.effects(charge=name)] == ["payable", "action"]


def test_a_mail_is_taken_down_at_its_final_dot(services: SandboxProcess, name: str) -> None:
    to = f"{name}@shop.example"
    services.order_fault("decline", charge=to)
    with smtplib.SMTP("127.0.0.1", services.mail_port or 0) as server:
        with pytest.raises(smtplib.SMTPDataError):
            server.sendmail("a@shop.example", [to], "Subject: no\r\n\r\nno")
        message = f"Message-ID: <{name}@shop.example>\r\nSubject: Hello\r\n\r\n.dot\r\n..dots\r\n"
        server.sendmail("a@shop.example", [to], message)
    (effect,) = services.effects(charge=to)
    assert (effect["kind"], effect["idempotency_key"]) == ("mail", name)
    assert effect["parameters"]["text"].splitlines() == [".dot", "..dots"]


def test_events_go_where_they_are_told_and_a_fault_can_lose_them(
    services: SandboxProcess, charge: str, name: str
) -> None:
    arrived: list[bytes] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            arrived.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        Thread(target=server.serve_forever).start()
        place = {"url": f"http://127.0.0.1:{server.server_port}/", "secret": "whsec_test"}
        services.http.post("/_sandbox/events", json=place).raise_for_status()
        services.order_fault("event_lost", charge=name)
        services.create(charge=name)
        services.create(charge=charge)
        eventually(lambda: len(arrived) == 2)
        services.http.post("/_sandbox/events", json={"url": "", "secret": ""}).raise_for_status()
        server.shutdown()
    assert {json.loads(each)["data"]["object"]["charge"] for each in arrived} == {charge}


def test_without_keys_and_references_everything_happens_twice(
    start_sandbox: Callable[..., SandboxProcess], tmp_path: Path, name: str
) -> None:
    naive = start_sandbox("--ignore-keys")
    for _ in range(2):
        assert pay(naive, name).status_code == 201
        assert act(naive, name, {"Idempotency-Key": "one"}).status_code == 201
    assert len(naive.effects(charge=name)) == 4
