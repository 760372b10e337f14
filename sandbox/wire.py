"""What arrives, what leaves, and the third possibility: a connection that closes without a word."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

# Encoders are made once, since json.dumps makes one for every call; ASCII, so that any string can be sent.
to_json = json.JSONEncoder(allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read whole from the socket."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    id: str = field(default_factory=lambda: f"req_{secrets.token_hex(7)}")

    @property
    def segments(self) -> list[str]:
        return [unquote(segment) for segment in self.path.split("/")[1:]]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; the body is text already, so that a replay is equal to the first to the byte."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, content: object, *, status: int = 200) -> "Answer":
        return cls(status, to_json(content))

    def with_headers(self, headers: Mapping[str, str]) -> "Answer":
        return Answer(self.status, self.body, {**self.headers, **headers})


class Dropped(Exception):
    """The connection closes here and now, and the caller is told nothing."""
