"""What arrives on the socket, friendly and hostile."""

import socket
from contextlib import closing

import httpx
import pytest

from tests.sandbox.conftest import PATIENCE, SandboxProcess

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def say(sandbox: SandboxProcess, words: bytes, *, half_close: bool = True) -> bytes:
    """Send the words (and, unless told otherwise, that these were all), then listen until it hangs up."""
    with closing(socket.create_connection(("127.0.0.1", sandbox.port), timeout=PATIENCE)) as connection:
        connection.sendall(words)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        heard = b""
        while chunk := connection.recv(65536):
            heard += chunk
        return heard


def test_it_says_that_it_is_well(sandbox_process: SandboxProcess) -> None:
    assert sandbox_process.http.get("/_sandbox/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Basic",
        "Basic !!!",
        "Basic Og==",
        "Digest x",
        "Bearer sk_live_1",
        "Bearer sk",
    ],
)
def test_without_an_api_key_of_ours_nothing_is_done(
    sandbox_process: SandboxProcess, charge: str, authorization: str
) -> None:
    response = sandbox_process.http.post(
        "/v1/refunds", data={"charge": charge, "amount": "1"}, headers={"Authorization": authorization}
    )
    assert (response.status_code, response.json()["error"]["type"]) == (401, "invalid_request_error")
    assert "sk_live" not in response.text
    assert sandbox_process.effects(charge=charge) == []


def test_the_api_key_may_come_as_basic_user_name(sandbox_process: SandboxProcess) -> None:
    response = httpx.get(f"{sandbox_process.url}/v1/refunds", auth=("sk_test_1", ""))
    assert response.status_code == 200


def test_every_request_is_noted_as_it_arrived_but_never_its_secret(
    sandbox_process: SandboxProcess, charge: str
) -> None:
    sandbox_process.create(charge=charge, amount=5, key=f"key-{charge}", **{"metadata[a]": "b"})
    sandbox_process.create(charge=charge, amount="x")
    sandbox_process.page(charge=charge)
    arrivals = sandbox_process.requests(charge=charge)
    assert all(arrival.pop("arrived").endswith("Z") for arrival in arrivals)
    assert arrivals == [
        {
            "method": "POST",
            "path": "/v1/refunds",
            "idempotency_key": f"key-{charge}",
            "parameters": {"charge": charge, "amount": "5", "metadata": {"a": "b"}},
            "status": 200,
        },
        {
            "method": "POST",
            "path": "/v1/refunds",
            "idempotency_key": None,
            "parameters": {"charge": charge, "amount": "x"},
            "status": 400,
        },
        {
            "method": "GET",
            "path": "/v1/refunds",
            "idempotency_key": None,
            "parameters": {"charge": charge},
            "status": 200,
        },
    ]
    assert "sk_sandbox" not in str(sandbox_process.requests())


@pytest.mark.parametrize(
    "body",
    [
        b"charge",
        b"charge=ch_1&charge=ch_2",
        b"charge=%ff%fe",
        b"charge=\xff",
        b"charge=ch_1&metadata=x&metadata[a]=b",
        b"charge=ch_1&metadata[a][b]=c",
        b"charge=ch_1&metadata[]=c",
        b"charge=ch_1&" + b"&".join(b"metadata[%d]=x" % n for n in range(300)),
        b"&",
    ],
)
def test_a_broken_form_is_refused_and_the_connection_lives_on(
    sandbox_process: SandboxProcess, body: bytes
) -> None:
    response = sandbox_process.http.post("/v1/refunds", content=body, headers=FORM)
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert response.headers["Connection"] == "keep-alive"


def test_a_body_that_is_no_form_is_refused(sandbox_process: SandboxProcess, charge: str) -> None:
    response = sandbox_process.http.post("/v1/refunds", json={"charge": charge, "amount": 1})
    assert (response.status_code, sandbox_process.effects(charge=charge)) == (400, [])


@pytest.mark.parametrize("size", [65 * 1024, 8 * 1024 * 1024])
def test_a_huge_body_is_refused_and_the_caller_hears_it(sandbox_process: SandboxProcess, size: int) -> None:
    body = b"charge=" + b"c" * size
    response = sandbox_process.http.post("/v1/refunds", content=body, headers=FORM)
    assert (response.status_code, response.headers["Connection"]) == (413, "close")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\n\r\n", 400),
        (b"BREW / HTTP/1.1\r\n\r\n", 405),
        (b"HEAD /v1/refunds HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nNo colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nFolded: a\r\n b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nSpace : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nBig: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"POST /v1/refunds HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /v1/refunds HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"POST /v1/refunds HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
        (b"POST /v1/refunds HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n", 413),
        (b"POST /v1/refunds HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
    ],
)
def test_what_is_not_plainly_a_request_is_refused(
    sandbox_process: SandboxProcess, words: bytes, status: int
) -> None:
    heard = say(sandbox_process, words)
    assert heard.startswith(b"HTTP/1.1 %d " % status)
    assert b'{"error": {"type": "invalid_request_error"' in heard
    assert sandbox_process.http.get("/_sandbox/health").status_code == 200


def test_half_a_request_asks_for_nothing(sandbox_process: SandboxProcess, charge: str) -> None:
    body = f"charge={charge}&amount=1".encode()
    head = b"POST /v1/refunds HTTP/1.1\r\nAuthorization: Bearer sk_test_1\r\nContent-Length: %d\r\n\r\n"
    assert say(sandbox_process, head % (len(body) + 1) + body) == b""
    assert sandbox_process.requests(charge=charge) == []


def test_two_requests_in_one_packet_get_two_answers(sandbox_process: SandboxProcess) -> None:
    heard = say(sandbox_process, b"GET /_sandbox/health HTTP/1.1\r\n\r\n" * 2)
    assert heard.count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize(
    "words",
    [b"GET /_sandbox/health HTTP/1.0\r\n\r\n", b"GET /x HTTP/1.1\r\nConnection: close\r\n\r\n"],
)
def test_a_caller_that_wants_one_answer_gets_one(sandbox_process: SandboxProcess, words: bytes) -> None:
    assert say(sandbox_process, words, half_close=False).count(b"\r\nConnection: close\r\n") == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "*"),
        ("POST", "/v1/charges"),
        ("GET", "/v2/refunds"),
        ("DELETE", "/v1/refunds/re_1"),
        ("GET", "/v1/refunds/re_%FF%00/x"),
        ("GET", "/_sandbox/"),
        ("POST", "/_sandbox/effects"),
    ],
)
def test_an_unknown_url_is_answered_404(sandbox_process: SandboxProcess, method: str, path: str) -> None:
    heard = say(
        sandbox_process, f"{method} {path} HTTP/1.1\r\nAuthorization: Bearer sk_test_1\r\n\r\n".encode()
    )
    assert heard.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert b"Unrecognized request URL" in heard
