"""A gate on the wire between a worker and its sink: it holds a request on its way there, or an answer on its way back.

It parks the worker at the two points that matter, without a line in the product: before the effect, after the effect.
"""

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

_CHUNK = 65_536
Side = Literal["request", "answer"]


@dataclass
class Hold:
    """The next request that contains ``marker`` is held on its way there, or its answer on its way back."""

    side: Side
    marker: bytes
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    dropped: bool = False


class Gate:
    """Listens on loopback and passes bytes on to a Unix or TCP address."""

    def __init__(self, upstream: str | tuple[str, int], *, port: int = 0) -> None:
        self._upstream = upstream
        self._pairs: list[_Pair] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._hold: Hold | None = None
        self._guard = threading.Lock()
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, side: Side, marker: bytes) -> Hold:
        """Arms the gate for one request."""
        self._hold = Hold(side, marker)
        return self._hold

    def close(self) -> None:
        """Lets go of everything and stops listening."""
        self._open = False
        with suppress(OSError):  # wakes the thread that accepts, which would hold the port
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._hold:
            self._hold.released.set()

    def cut(self) -> None:
        """As ``close``, and cuts every connection there is: nobody is behind it any more."""
        self.close()
        for pair in self._pairs:
            pair.close()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = self._connect()
            except OSError:
                client.close()
                continue
            pair = _Pair(client, server)
            self._pairs.append(pair)
            threading.Thread(target=self._requests, args=[pair], daemon=True).start()
            threading.Thread(target=self._answers, args=[pair], daemon=True).start()

    def _connect(self) -> socket.socket:
        if isinstance(self._upstream, str):
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._upstream)
            return server
        return socket.create_connection(self._upstream)

    def _requests(self, pair: "_Pair") -> None:
        with suppress(OSError):
            while chunk := pair.client.recv(_CHUNK):
                hold = self._taken_by(chunk)
                if hold and hold.side == "request":
                    hold.reached.set()
                    hold.released.wait()
                    if hold.dropped:
                        break
                elif hold:
                    pair.held = hold
                pair.server.sendall(chunk)
        pair.close()

    def _answers(self, pair: "_Pair") -> None:
        with suppress(OSError):
            while chunk := pair.server.recv(_CHUNK):
                if hold := pair.held:
                    hold.reached.set()
                    hold.released.wait()
                    pair.held = None
                    if hold.dropped:
                        break
                pair.client.sendall(chunk)
        pair.close()

    def _taken_by(self, chunk: bytes) -> Hold | None:
        with self._guard:
            hold = self._hold
            if hold is None or hold.marker not in chunk:
                return None
            self._hold = None
            return hold


@dataclass
class _Pair:
    client: socket.socket
    server: socket.socket
    held: Hold | None = None

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
