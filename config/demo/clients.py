"""Who the worked example needs, over real HTTP: an agent with a key, a reviewer with a browser's session."""

import re
from typing import Any

import httpx

from config.demo.seed import Person

_SECONDS = 10.0
_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class AgentClient:
    """An agent's program: a key, JSON, and the ETag of what it last read."""

    def __init__(self, base_url: str, key: str) -> None:
        self._http = httpx.Client(
            base_url=f"{base_url}/api/v1", headers={"Authorization": f"Bearer {key}"}, timeout=_SECONDS
        )

    def post(self, path: str, body: dict[str, Any], *, etag: str | None = None) -> httpx.Response:
        """One POST, with If-Match where the call needs to say which revision it saw."""
        return self._http.post(path, json=body, headers={"If-Match": etag} if etag else {})

    def get(self, path: str) -> httpx.Response:
        """One GET."""
        return self._http.get(path)


class ReviewerClient:
    """A signed-in reviewer."""

    def __init__(self, base_url: str, person: Person) -> None:
        self._base_url = base_url
        self._http = httpx.Client(base_url=base_url, timeout=_SECONDS)
        page = self._http.get("/sign-in/")
        answer = self._http.post(
            "/sign-in/",
            data={"username": person.email, "password": person.password, "csrfmiddlewaretoken": _token(page)},
            headers={"Referer": f"{base_url}/sign-in/"},
        )
        if answer.status_code != httpx.codes.FOUND:
            raise RuntimeError(f"{person.email} could not sign in: {answer.status_code}")

    def decide(
        self, case_id: str, *, etag: str, digest: str, verdict: str, reason: str = ""
    ) -> httpx.Response:
        """POST /cases/{id}/decisions with the session's cookie and CSRF token."""
        return self._http.post(
            f"/api/v1/cases/{case_id}/decisions",
            json={"verdict": verdict, "digest": digest, "reason": reason},
            headers={
                "If-Match": etag,
                "X-CSRFToken": self._http.cookies["csrftoken"],
                "Referer": self._base_url,
            },
        )


def _token(page: httpx.Response) -> str:
    found = _TOKEN.search(page.text)
    if found is None:
        raise RuntimeError(f"The sign-in page carries no form ({page.status_code}).")
    return found[1]
