"""A tenant with its agent and people, and callers that speak to the REST interface as they would over the wire."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.test import Client
from django.test.client import ClientHandler

from tests.worlds import World, new_world

API = "/api/v1"
CSRF = "c" * 32

REFUND: dict[str, Any] = {
    "reference": "1842",
    "action": "refund",
    "target": "order:88213",
    "step": 1,
    "parameters": {"payment": "ch_1842", "amount_minor": 125_000, "currency": "EUR"},
    "rationale": "Parcel lost in transit.",
    "evidence": [
        {
            "statement": "Carrier reports the parcel lost",
            "source": "carrier",
            "fetched_at": "2026-11-30T10:39:00Z",
        }
    ],
}


@dataclass
class Answer:
    """An HTTP answer, read."""

    response: Any

    @property
    def status(self) -> int:
        return int(self.response.status_code)

    @property
    def headers(self) -> Any:
        return self.response.headers

    @property
    def etag(self) -> str:
        return str(self.response.headers["ETag"])

    @property
    def json(self) -> Any:
        return json.loads(self.response.content)

    @property
    def problem(self) -> str:
        """The name the problem's type ends in; checks that it is a whole problem document."""
        assert self.headers["Content-Type"] == "application/problem+json"
        problem = self.json
        assert problem["status"] == self.status
        assert problem["title"]
        assert problem["detail"]
        return str(problem["type"].removeprefix("/docs/errors#"))

    @property
    def pointers(self) -> list[str]:
        return [error.get("pointer", error.get("parameter")) for error in self.json["errors"]]


@dataclass
class Caller:
    """Somebody with a key or a session. Paths are below /api/v1."""

    client: Client
    headers: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Answer:
        return self._call("get", path, headers=headers)

    def post(self, path: str, body: Any = None, if_match: str | None = None, **headers: str) -> Answer:
        if if_match is not None:
            headers["If-Match"] = if_match
        return self._call("post", path, headers=headers, data=body, content_type="application/json")

    def send(self, path: str, raw: bytes, content_type: str = "application/json", **headers: str) -> Answer:
        return self._call("post", path, headers=headers, data=raw, content_type=content_type)

    def any(self, method: str, path: str, **headers: str) -> Answer:
        return self._call(method, path, headers=headers)

    def _call(self, method: str, path: str, headers: dict[str, str], **sent: Any) -> Answer:
        address = path if path.startswith("/api/") else API + path
        response = getattr(self.client, method)(address, headers={**self.headers, **headers}, **sent)
        return Answer(response)

    def propose(self, **changes: Any) -> Answer:
        return self.post("/cases", {**REFUND, **changes})

    def revise(self, case: Answer, if_match: str | None = None, **content: Any) -> Answer:
        """Sends new content for what the answer showed."""
        body = {"parameters": REFUND["parameters"], **content}
        return self.post(f"/cases/{case.json['id']}/revisions", body, if_match=if_match or case.etag)

    def withdraw(self, case: Answer, if_match: str | None = None) -> Answer:
        """Takes back what the answer showed."""
        return self.post(f"/cases/{case.json['id']}/withdrawal", {}, if_match=if_match or case.etag)

    def read(self, case: Answer) -> Answer:
        """The case as it is now."""
        return self.get(f"/cases/{case.json['id']}")

    def decide(self, case: Answer, verdict: str = "approve", **said: Any) -> Answer:
        """Decides on what the answer showed."""
        if_match = said.pop("if_match", case.etag)
        word = {"verdict": verdict, "digest": case.json["digest"], **said}
        return self.post(f"/cases/{case.json['id']}/decisions", word, if_match=if_match)


def by_key(world: World) -> Caller:
    """The organisation's agent."""
    return with_key(world.organisation.agent_key)


def with_key(key: str) -> Caller:
    """A caller with this key; what the server raises comes back as its answer."""
    return Caller(_client(), {"Authorization": f"Bearer {key}"})


def signed_in(world: World, handle: str) -> Caller:
    """A signed-in member, with the console's session and CSRF token."""
    client = _client()
    member = world.organisation.people[handle].member
    client.force_login(member.user)
    session = client.session
    session["member_id"] = member.pk
    session.save()
    client.cookies["csrftoken"] = CSRF
    return Caller(client, {"X-CSRFToken": CSRF})


# Middleware is loaded once for all, as a server does; looking for static files takes longer than a call.
_handler = ClientHandler(enforce_csrf_checks=True)


def _client() -> Client:
    client = Client(raise_request_exception=False)
    client.handler = _handler
    return client


def refund(**parameters: Any) -> dict[str, Any]:
    """The parameters of the usual refund, but for these."""
    return {**REFUND["parameters"], **parameters}


@pytest.fixture
def world(db: None) -> World:
    """An organisation where one approval at tier 1 is enough."""
    return new_world()


@pytest.fixture
def agent(world: World) -> Caller:
    return by_key(world)


@pytest.fixture
def reviewer(world: World) -> Caller:
    return signed_in(world, "reviewer")


@pytest.fixture
def elsewhere(db: None) -> World:
    """Another organisation."""
    return new_world()


@pytest.fixture
def case(agent: Caller) -> Answer:
    """A pending case, as its agent was answered."""
    answer = agent.propose()
    assert answer.status == 201, answer.json
    return answer
