"""Any HTTP service, described by settings: what a status means, versions, secrets, and where nothing may go."""

import json
from typing import Any
from uuid import uuid4

import pytest

from ledger.claims import Grant
from tests.sandbox.conftest import SandboxProcess
from tests.workers.connectors.peers import TOKEN, grant
from tests.workers.connectors.test_conformance import SECONDS, answering, http
from workers.connectors.answers import Answer, Busy, InProgress, NotSent, Receipt, Refused, Uncertain
from workers.connectors.http_action import HttpAction
from workers.connectors.wire import BadSetting, found_at, text_at


def action(at: str, *, sink_version: str | None = None, **changes: Any) -> Grant:
    settings = {"url": f"{at}/actions", "look_up": {"url": f"{at}/actions?key={{key}}"}, **changes}
    body = json.dumps({"target": f"config:{uuid4().hex}"})
    return grant(body=body, sink_settings=settings, sink_version=sink_version)


def told(line: str, *headers: str, body: bytes = b'{"error":{"code":"no"}}', **changes: Any) -> Answer:
    with answering(http(body, line, *headers)) as port:
        return HttpAction().send(action(f"http://127.0.0.1:{port}", **changes), timeout=SECONDS)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        ("400 Bad Request", Refused("no", "400")),
        ("404 Not Found", Refused("no", "404")),
        ("410 Gone", Refused("no", "410")),
        ("412 Precondition Failed", Refused("sink_version", "412")),
        ("422 Unprocessable", Refused("no", "422")),
        ("401 Unauthorized", Busy("401")),
        ("403 Forbidden", Busy("403")),
        ("429 Too Many Requests", Busy("429")),
        ("409 Conflict", Uncertain("409")),
        ("408 Request Timeout", Uncertain("408")),
        ("500 Internal Server Error", Uncertain("500")),
        ("503 Unavailable", Uncertain("503")),
        ("302 Found", Uncertain("302")),
    ],
)
def test_what_a_status_means_unless_the_sink_documents_otherwise(status: str, answer: Answer) -> None:
    assert told(status) == answer


def test_the_sink_may_document_its_statuses_otherwise() -> None:
    answers = {"409": "in_progress", "503": "busy", "400": "uncertain"}
    assert told("409 Conflict", answers=answers) == InProgress("409")
    assert told("503 Unavailable", "Retry-After: 7", answers=answers) == Busy("503", retry_after=7.0)
    assert told("400 Bad Request", answers=answers) == Uncertain("400")


def test_a_2xx_is_a_receipt_only_with_a_reference() -> None:
    accepted = told(
        "202 Accepted", body=b'{"job":{"n":12},"state":"queued"}', reference="/job/n", status="/state"
    )
    assert accepted == Receipt("12", "queued", {"job": {"n": 12}, "state": "queued"})
    assert isinstance(told("204 No Content", body=b""), Uncertain)


def test_the_version_that_was_approved_goes_along(sandbox: SandboxProcess) -> None:
    sink, token = HttpAction(), {"token_env": TOKEN}
    current = action(sandbox.url, sink_version="0", **token)
    assert isinstance(sink.send(current, timeout=SECONDS), Receipt)
    moved = action(sandbox.url, sink_version="3", **token)
    answer = sink.send(moved, timeout=SECONDS)
    assert isinstance(answer, Refused)
    assert answer.reason == "sink_version"
    assert sandbox.effects(charge=json.loads(moved.body)["target"]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "http://erp.example/actions"},
        {"url": "https://user:secret@erp.example/"},
        {"url": "ftp://erp.example/"},
        {"url": "https://erp.example/\r\nX: y"},
        {"url": None},
        {"look_up": {"url": "https://elsewhere.example/?key={key}"}},
        {"look_up": {"url": "http://127.0.0.1:9/actions"}},
        {"look_up": None},
        {"method": "GET"},
        {"answers": {"409": "fine"}},
    ],
)
def test_settings_that_lead_nowhere_good_name_no_sink(changes: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        HttpAction().identity(action("http://127.0.0.1:9", **changes).sink_settings)


@pytest.mark.parametrize("name", ["SECRET_KEY", "DATABASE_URL", "SINK_", "sink_x", "SINK_NOT_SET", 7])
def test_a_tool_reaches_no_secret_but_its_own(sandbox: SandboxProcess, name: Any) -> None:
    made = action(sandbox.url, token_env=name)
    assert isinstance(HttpAction().send(made, timeout=SECONDS), NotSent)
    assert isinstance(HttpAction().look_up(made, timeout=SECONDS), Uncertain)


def test_a_header_that_cannot_be_written_sends_nothing(sandbox: SandboxProcess) -> None:
    made = action(sandbox.url, headers={"X-Company": "a\r\nX-Other: b"})
    assert isinstance(HttpAction().send(made, timeout=SECONDS), NotSent)
    assert sandbox.requests(charge=json.loads(made.body)["target"]) == []


def test_pointers_reach_members_and_nothing_else() -> None:
    content = {"a": [{"b/c": "x"}], "n": 7, "t": True, "e": ""}
    assert found_at(content, "/a/0/b~1c") == "x"
    assert found_at(content, "/a/9") is None
    assert found_at(content, "/a/b") is None
    assert [text_at(content, where) for where in ("/n", "/t", "/e", "/a")] == ["7", None, None, None]
