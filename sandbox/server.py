"""The socket: HTTP/1.1 with keep-alive on one thread, and the power to hang up without a word."""

import asyncio
from asyncio import StreamReader, StreamWriter

from sandbox import http1
from sandbox.errors import ApiError
from sandbox.provider import Provider
from sandbox.wire import Answer, Dropped

BACKLOG = 256  # connections the kernel may hold for us: a burst of tests is not refused
LARGEST_DRAIN = 16 * 1024 * 1024  # bytes read and thrown away, so that a refused caller hears the refusal
DRAIN_SECONDS = 1.0


class Server:
    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def listen(self, host: str, port: int) -> str:
        """Take connections from now on and answer the URL to reach us by."""
        server = await asyncio.start_server(
            self._converse, host, port, limit=http1.LARGEST_HEAD, backlog=BACKLOG
        )
        host, port = server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    async def _converse(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Answer one caller's requests, one after another, until either side has enough."""
        try:
            await self._answer_all(reader, writer)
        except ApiError as refusal:
            _send(writer, refusal.answer, last=True)
            await _drain(reader, writer)
        except (Dropped, ConnectionError, asyncio.CancelledError):  # cancelled: the sandbox stops
            pass
        finally:
            writer.close()

    async def _answer_all(self, reader: StreamReader, writer: StreamWriter) -> None:
        last = False
        while not last and (request := await http1.read_request(reader)) is not None:
            last = http1.wants_close(request)
            _send(writer, await self._provider.answer(request), last=last)
            await writer.drain()


def _send(writer: StreamWriter, answer: Answer, *, last: bool) -> None:
    writer.write(http1.to_bytes(answer, last=last))


async def _drain(reader: StreamReader, writer: StreamWriter) -> None:
    """Read on for a moment: closing over unread bytes would reset the connection and lose the answer."""
    left = LARGEST_DRAIN
    try:
        writer.write_eof()
        async with asyncio.timeout(DRAIN_SECONDS):
            while left > 0 and (chunk := await reader.read(65536)):
                left -= len(chunk)
    except (OSError, TimeoutError):
        pass
