"""A mail server that delivers nothing: it takes messages down, and breaks at the final dot on demand.

As much of SMTP (RFC 5321) as a sender needs, without TLS and without a log-in. A fault's `charge` is the recipient.
"""

import asyncio
import re
from asyncio import StreamReader, StreamWriter
from email import message_from_bytes, policy

from sandbox import effects, faults
from sandbox.faults import Fault, Faults
from sandbox.store import Store
from sandbox.wire import Dropped

KIND = "mail"
LARGEST = 256 * 1024  # bytes of a message, and of a line
ADDRESS = re.compile(rb"(?:MAIL FROM|RCPT TO):<([^<>\s]*)>", re.IGNORECASE)
STRIKES = frozenset(
    {
        faults.DROP_BEFORE_COMMIT,
        faults.DROP_AFTER_COMMIT,
        faults.HANG_BEFORE_COMMIT,
        faults.HANG_AFTER_COMMIT,
        faults.RATE_LIMIT,
        faults.DECLINE,
    }
)


class Mail:
    def __init__(self, store: Store, pending: Faults) -> None:
        self._store = store
        self._faults = pending

    async def listen(self, host: str, port: int) -> str:
        """Take connections from now on and answer the place to reach us at."""
        server = await asyncio.start_server(self._converse, host, port, limit=LARGEST)
        host, port = server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def _converse(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            _say(writer, "220 sandbox ESMTP")
            await self._answer_all(reader, writer)
        except (Dropped, ConnectionError, ValueError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the sender has gone, or never spoke SMTP, or the sandbox stops
        finally:
            writer.close()

    async def _answer_all(self, reader: StreamReader, writer: StreamWriter) -> None:
        recipient = ""
        while line := await reader.readline():
            verb = line[:4].upper().strip()
            if verb == b"RCPT" and (named := ADDRESS.match(line)):
                recipient = named[1].decode("latin-1")
            if verb == b"DATA" and recipient:
                _say(writer, "354 go ahead")
                _say(writer, await self._take(recipient, await _message(reader)))
                recipient = ""
            else:
                _say(writer, _ANSWERS.get(verb, "500 what?"))
            await writer.drain()
            if verb == b"QUIT":
                return

    async def _take(self, recipient: str, message: bytes) -> str:
        fault = self._faults.take(STRIKES, recipient, kind=KIND)
        match fault:
            case Fault(fault=faults.RATE_LIMIT):
                return "451 try again later"
            case Fault(fault=faults.DECLINE):
                return "550 refused"
            case Fault(fault=faults.DROP_BEFORE_COMMIT):
                raise Dropped
            case Fault(fault=faults.HANG_BEFORE_COMMIT, seconds=seconds):
                await self._faults.hang(seconds)
        self._write_down(recipient, message)
        match fault:
            case Fault(fault=faults.DROP_AFTER_COMMIT):
                raise Dropped
            case Fault(fault=faults.HANG_AFTER_COMMIT, seconds=seconds):
                await self._faults.hang(seconds)
        return "250 taken down"

    def _write_down(self, recipient: str, message: bytes) -> None:
        read = message_from_bytes(message, policy=policy.default)
        headers = {name: str(read.get(name, "")).strip() for name in ("message-id", "subject", "from", "to")}
        body = read.get_body(("plain",))
        text = body.get_content() if body is not None else ""
        key = headers["message-id"].strip("<>").partition("@")[0] or None
        with self._store.transaction() as db:
            parameters = {**headers, "text": text[:2000]}
            effects.make(db, kind=KIND, prefix="mail", key=key, subject=recipient, parameters=parameters)


_ANSWERS = {
    b"EHLO": "250 sandbox",
    b"HELO": "250 sandbox",
    b"MAIL": "250 fine",
    b"RCPT": "250 fine",
    b"RSET": "250 fine",
    b"NOOP": "250 fine",
    b"QUIT": "221 bye",
    b"DATA": "503 to whom?",
}


def _say(writer: StreamWriter, words: str) -> None:
    writer.write(f"{words}\r\n".encode())


async def _message(reader: StreamReader) -> bytes:
    """The lines until the one that is a dot alone. Raise Dropped where the sender hangs up before it."""
    lines: list[bytes] = []
    while (line := await reader.readline()) != b".\r\n":
        if not line or sum(map(len, lines)) > LARGEST:
            raise Dropped
        lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
    return b"".join(lines)
