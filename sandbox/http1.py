"""As much of HTTP/1.1 as a provider needs: requests with a Content-Length in, answers in one write out.

Whatever is not plainly a request is refused: this is where hostile input ends.
"""

import re
from asyncio import IncompleteReadError, LimitOverrunError, StreamReader
from email.utils import formatdate
from http import HTTPStatus

from sandbox.errors import invalid_request
from sandbox.wire import Answer, Dropped, Request

LARGEST_HEAD = 32 * 1024  # bytes
LARGEST_BODY = 64 * 1024  # bytes; a refund with all its metadata needs less

METHODS = ("GET", "POST", "DELETE")
REQUEST_LINE = re.compile(r"([A-Z]{1,10}) ([!-~]{1,8000}) HTTP/1\.([01])")
HEADER = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*(.*?)[ \t]*")
DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)


async def read_request(reader: StreamReader) -> Request | None:
    """Read one request whole; None where the caller is done.

    Raise ApiError where it cannot be read to its end: nothing more can then be read from this connection.
    Raise Dropped where the caller hung up half-way: it asked for nothing.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except LimitOverrunError:
        raise invalid_request(f"The head is larger than {LARGEST_HEAD} bytes.", status=431) from None
    except IncompleteReadError as ended:
        if not ended.partial:
            return None
        raise invalid_request("This is not HTTP/1.1.") from None
    line, *lines = head.decode("latin-1").split("\r\n")[:-2]
    start = REQUEST_LINE.fullmatch(line)
    if start is None:
        raise invalid_request("This is not HTTP/1.1.")
    method, target, minor = start.groups()
    if method not in METHODS:
        raise invalid_request(f"The sandbox knows {', '.join(METHODS)}.", status=405)
    headers = _headers(lines)
    if minor == "0":
        headers["connection"] = "close"
    path, _, query = target.partition("?")
    return Request(method, path, query, headers, await _body(reader, headers))


def wants_close(request: Request) -> bool:
    return request.headers.get("connection", "").lower() == "close"


def to_bytes(answer: Answer, *, last: bool) -> bytes:
    """Head and body together, so that they leave in one packet."""
    body = answer.body.encode()
    headers = {
        "Date": formatdate(usegmt=True),
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-cache, no-store",
        "Connection": "close" if last else "keep-alive",
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _headers(lines: list[str]) -> dict[str, str]:
    """Names in lower case. A header given twice is joined by a comma, as HTTP has it."""
    headers: dict[str, str] = {}
    for line in lines:
        match = HEADER.fullmatch(line)
        if match is None:
            raise invalid_request("Invalid header.")
        name, value = match[1].lower(), match[2]
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def _body(reader: StreamReader, headers: dict[str, str]) -> bytes:
    if "transfer-encoding" in headers:
        raise invalid_request("Send a Content-Length.", status=411)
    length = headers.get("content-length", "0")
    if not DIGITS.fullmatch(length):
        raise invalid_request("Invalid Content-Length.")
    if int(length) > LARGEST_BODY:
        raise invalid_request(f"The body is larger than {LARGEST_BODY} bytes.", status=413)
    try:
        return await reader.readexactly(int(length)) if int(length) else b""
    except IncompleteReadError:
        raise Dropped from None
