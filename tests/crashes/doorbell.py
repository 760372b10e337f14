"""The broker the tests run on, by environment alone: the embedded folder, or Redis; emptied, and taken away.

Redis is reached through a gate, by the workers and by ourselves: a gate that is shut is a broker that is away.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import redis
from celery import current_app
from django.conf import settings

from tests.crashes.gate import Gate


class Doorbell(Protocol):
    """What a test can do to its broker."""

    def environment(self) -> dict[str, str]:
        """What a process has to be told to ring and to hear."""

    def empty(self) -> None:
        """Loses every message."""

    def away(self) -> AbstractContextManager[None]:
        """Nothing can be sent or received inside."""


@dataclass(frozen=True)
class Folder:
    """The embedded broker: a folder of files."""

    path: Path

    def environment(self) -> dict[str, str]:
        return {"BROKER_DIR": str(self.path)}

    def empty(self) -> None:
        shutil.rmtree(self.path / "messages", ignore_errors=True)
        (self.path / "messages").mkdir(parents=True, exist_ok=True)

    @contextmanager
    def away(self) -> Iterator[None]:
        # The worker is writing there: the folder moves away at once, and is not taken apart file by file.
        gone = self.path.with_name(f"{self.path.name}-gone")
        self.path.rename(gone)
        self.path.write_text("not a folder: nothing can be sent or received")
        shutil.rmtree(gone, ignore_errors=True)
        try:
            yield
        finally:
            self.path.unlink()
            (self.path / "messages").mkdir(parents=True)
            (self.path / "control").mkdir()


class Redis:
    """A Redis server, behind a gate of this run's own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = redis.Redis.from_url(url)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 6379)
        self._gate = Gate(self._upstream)
        self._url = f"redis://127.0.0.1:{self._gate.port}{parts.path}"
        self._listen_to(self._url)

    def environment(self) -> dict[str, str]:
        return {"BROKER_URL": self._url}

    def empty(self) -> None:
        self._server.flushdb()

    @contextmanager
    def away(self) -> Iterator[None]:
        self._gate.cut()
        try:
            yield
        finally:
            self._gate = Gate(self._upstream, port=self._gate.port)

    @staticmethod
    def _listen_to(url: str) -> None:
        """Lets our own messages take the same way, whatever connection an earlier test has left."""
        current_app.close()
        current_app.conf.update(broker_url=url, broker_read_url=url, broker_write_url=url)


def doorbell() -> Doorbell:
    """The broker that BROKER_URL names; without one, the embedded folder."""
    url = os.environ.get("BROKER_URL", "")
    return Redis(url) if url.startswith("redis") else Folder(settings.BROKER_DIR)
