"""The embedded queue: kombu's folder of files, made whole.

kombu's own transport creates a message under its final name and fills it afterwards: a reader that
comes between sees an empty file, and the Celery worker exits. Here a message appears by a rename,
complete or not at all, and is taken by a rename, by one reader only. Importing this module makes the
address `atomic-filesystem://` known to kombu.

As with the original, a reader that is killed takes the message in its hand with it. A queue that is
only a doorbell can bear that.
"""

import base64
import fcntl
import logging
import os
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import Any, BinaryIO, ClassVar

from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.transport.virtual import BrokerState
from kombu.utils.json import dumps, loads

URL = "atomic-filesystem://localhost"
POLLING_INTERVAL = (
    0.02  # seconds: half of it is the doorbell's wait at the median; about 1 % of a core when idle
)

logger = logging.getLogger(__name__)


def transport_options(directory: Path, *, polling_interval: float = POLLING_INTERVAL) -> dict[str, Any]:
    """Celery's `broker_transport_options`: one folder for senders and receivers."""
    return {
        "data_folder_in": str(directory / "messages"),
        "data_folder_out": str(directory / "messages"),
        "control_folder": str(directory / "control"),
        "polling_interval": polling_interval,
    }


class Channel(filesystem.Channel):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._listed: defaultdict[str, deque[str]] = defaultdict(deque)
        for folder in (self.data_folder_in, self.control_folder):
            Path(folder).mkdir(parents=True, exist_ok=True)

    def _put(self, queue: str, payload: Any, **_options: Any) -> None:  # type: ignore[override]
        Path(self.data_folder_out).mkdir(parents=True, exist_ok=True)  # a sender never has to reconnect
        file = Path(self.data_folder_out, f"{time.time_ns():020d}_{uuid.uuid4()}.{queue}.msg")
        unfinished = file.with_name(f"{file.name}.part")
        unfinished.write_text(dumps(payload))
        unfinished.rename(file)

    def _get(self, queue: str) -> Any:  # type: ignore[override]
        # Listed once and worked off: listing anew for each message makes a backlog quadratic.
        names = self._listed[queue]
        if not names:
            names.extend(self._list(queue))
        while names:
            text = _take(Path(self.data_folder_in, names.popleft()))
            if text is not None and (payload := _read(text)) is not None:
                return payload
        raise Empty

    def _bindings_of(self, exchange: str) -> Path:
        file: Path = self._exchange_file(exchange)  # type: ignore[attr-defined]
        return file

    def _list(self, queue: str) -> list[str]:
        suffix = f"{queue}.msg"
        return sorted(name for name in os.listdir(self.data_folder_in) if name.partition(".")[2] == suffix)

    def get_table(self, exchange: str) -> list[filesystem.exchange_queue_t]:  # type: ignore[override]
        with _locked(self._bindings_of(exchange)) as file:
            return _bindings(file)

    def _queue_bind(
        self, exchange: str, routing_key: str | None, pattern: str | None, queue: str | None
    ) -> None:
        binding = filesystem.exchange_queue_t(routing_key or "", pattern or "", queue or "")
        with _locked(self._bindings_of(exchange)) as file:
            bindings = _bindings(file)
            if binding not in bindings:
                file.seek(0)
                file.write(dumps([binding, *bindings]).encode())


class Transport(filesystem.Transport):
    Channel = Channel
    polling_interval = POLLING_INTERVAL
    # A folder that is gone for a while is a broker that is down: reconnect, do not give up.
    connection_errors = (*filesystem.Transport.connection_errors, OSError)
    states: ClassVar[defaultdict[str, BrokerState]] = defaultdict(BrokerState)

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        # What has been declared is remembered per folder, not once for all folders of the process.
        self.state = self.states[client.transport_options["control_folder"]]


def _take(file: Path) -> str | None:
    """Returns the content, or None if another reader was first."""
    in_hand = file.with_name(f"{file.name}.taken")
    try:
        file.rename(in_hand)
    except FileNotFoundError:
        return None
    text = in_hand.read_text(errors="replace")
    in_hand.unlink()
    return text


def _read(text: str) -> Any:
    """The message, or None for one that no sender of ours wrote: what reads it further on would end the worker."""
    try:
        message = loads(text)
        _require_form(message)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        # A power cut can keep the name and lose the content. The sweep finds the work without it.
        logger.warning("A queue message was unreadable and is dropped: %.80r", text)
        return None
    return message


def _require_form(message: Any) -> None:
    """Raises one of the errors above unless this is an envelope as kombu writes it, with a body as Celery reads it."""
    properties, headers = message["properties"], message["headers"]
    words = [message["content-type"], message["content-encoding"], properties["delivery_tag"]]
    if not all(isinstance(word, str) for word in words) or properties["body_encoding"] != "base64":
        raise ValueError
    if not isinstance(properties["delivery_info"]["exchange"], str) or not isinstance(headers, dict):
        raise TypeError
    body = base64.b64decode(message["body"], validate=True)
    if "task" in headers:
        positional, named, embedded = loads(body.decode(message["content-encoding"]))
        if not (
            isinstance(positional, list) and isinstance(named, dict) and isinstance(embedded, dict | None)
        ):
            raise TypeError


@contextmanager
def _locked(file: Path) -> Iterator[BinaryIO]:
    """Opens the file, makes it where needed, and lets nobody else at it meanwhile."""
    with open(os.open(file, os.O_RDWR | os.O_CREAT, 0o666), "rb+", buffering=0) as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield opened


def _bindings(file: BinaryIO) -> list[filesystem.exchange_queue_t]:
    # Empty is a file that was made a moment ago and has no binding yet.
    return [filesystem.exchange_queue_t(*binding) for binding in loads(file.read() or b"[]")]


TRANSPORT_ALIASES["atomic-filesystem"] = "config.embedded.broker:Transport"
