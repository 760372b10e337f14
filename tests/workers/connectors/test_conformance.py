"""What every connector owes the protocol, each against its real peer: one effect, honest answers, in time."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.workers.connectors.peers import ONCE, Peer, end
from workers import connectors
from workers.connectors.answers import (
    Absent,
    Busy,
    Differs,
    InProgress,
    Listing,
    NotSent,
    Receipt,
    Refused,
    Uncertain,
)

SECONDS = 60.0
ALL = ["stripe_refunds", "http_action", "supplier_invoices", "owned_ledger", "smtp_mail"]
ASKED = [name for name in ALL if name != "smtp_mail"]
"""Those whose sink can be asked."""

every_peer = pytest.mark.parametrize("peer", ALL, indirect=True)
every_peer_that_can_be_asked = pytest.mark.parametrize("peer", ASKED, indirect=True)


def test_every_connector_there_is_takes_part() -> None:
    assert sorted(ALL) == sorted(connectors.NAMES)


@every_peer
def test_a_first_send_is_a_receipt_and_one_effect(peer: Peer) -> None:
    order = peer.grant()
    answer = peer.sink.send(order, timeout=SECONDS)
    assert isinstance(answer, Receipt), answer
    assert answer.reference
    assert peer.count(order) == 1


@every_peer
def test_the_same_order_again_has_no_second_effect_where_the_class_promises_it(peer: Peer) -> None:
    order = peer.grant()
    first, again = (peer.sink.send(order, timeout=SECONDS) for _ in range(2))
    assert isinstance(first, Receipt)
    if peer.enforcement in ONCE:
        assert isinstance(again, Refused) or again == first
        assert peer.count(order) == 1
    else:
        assert peer.count(order) == 2  # and that is what its tool's page says


@every_peer
def test_the_same_identity_with_other_content_is_a_conflict(peer: Peer) -> None:
    order = peer.grant()
    peer.sink.send(order, timeout=SECONDS)
    other = peer.other(order)
    answer = peer.sink.send(other, timeout=SECONDS)
    if peer.enforcement in ONCE:
        assert isinstance(answer, Refused | Uncertain), answer
        assert peer.count(order) == 1
        assert isinstance(peer.sink.look_up(other, timeout=SECONDS), Differs)


@every_peer
def test_two_at_once_have_one_effect_where_the_class_promises_it(peer: Peer) -> None:
    order = peer.grant()
    ready = threading.Barrier(2)

    def send(_: int) -> Any:
        ready.wait()
        return peer.sink.send(order, timeout=SECONDS)

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(send, range(2)))
    assert any(isinstance(each, Receipt) for each in answers)
    assert all(isinstance(each, Receipt | InProgress | Refused | Uncertain | Busy) for each in answers)
    assert peer.count(order) == (1 if peer.enforcement in ONCE else 2)


@every_peer
def test_a_sink_that_is_not_there_was_sent_nothing(peer: Peer) -> None:
    sink, sink_settings = peer.made(1)
    try:
        answer = sink.send(replace(peer.grant(), sink_settings=sink_settings), timeout=0.3)
    finally:
        end(sink)
    assert isinstance(answer, NotSent), answer


@every_peer
def test_an_answer_that_is_lost_leaves_us_not_knowing(peer: Peer) -> None:
    order = peer.grant()
    peer.lose_the_answer()
    answer = peer.sink.send(order, timeout=SECONDS)
    assert isinstance(answer, Uncertain), answer
    assert not answer.stored
    assert peer.count(order) == 1


@every_peer_that_can_be_asked
def test_what_was_lost_is_found_again_and_carries_our_key(peer: Peer) -> None:
    order = peer.grant()
    peer.lose_the_answer()
    peer.sink.send(order, timeout=SECONDS)
    found = peer.sink.look_up(order, timeout=SECONDS)
    assert isinstance(found, Receipt), found
    assert found.key in (order.key, None)


@every_peer_that_can_be_asked
def test_what_never_happened_is_absent_and_a_sink_that_is_away_says_nothing(peer: Peer) -> None:
    assert isinstance(peer.sink.look_up(peer.grant(), timeout=SECONDS), Absent)
    sink, sink_settings = peer.made(1)
    try:
        found = sink.look_up(replace(peer.grant(), sink_settings=sink_settings), timeout=0.3)
    finally:
        end(sink)
    assert isinstance(found, Uncertain)


@every_peer
def test_a_call_ends_with_its_time(peer: Peer) -> None:
    hold = peer.gate.hold("answer", peer.request)
    began = time.monotonic()
    answer = peer.sink.send(peer.grant(), timeout=1.0)
    took = time.monotonic() - began
    hold.released.set()
    assert isinstance(answer, Uncertain), answer
    assert took < 15.0


@every_peer
def test_a_sink_is_named_without_secrets(peer: Peer) -> None:
    named = peer.sink.identity(peer.sink_settings)
    assert "127.0.0.1" in named
    assert "sk_" not in named


@every_peer_that_can_be_asked
def test_a_listing_has_every_effect_once(peer: Peer) -> None:
    assert isinstance(peer.sink, Listing)
    orders = [peer.grant() for _ in range(3)]
    for order in orders:
        peer.sink.send(order, timeout=SECONDS)
    listed = []
    cursor = None
    while True:
        page = peer.sink.list_effects(
            peer.sink_settings,
            since=_moment(-60),
            until=_moment(60),
            cursor=cursor,
            timeout=SECONDS,
        )
        listed += [each.key for each in page.effects]
        if (cursor := page.cursor) is None:
            break
    assert all(listed.count(order.key) == 1 for order in orders)


# Hostile answers.

HTTP = ["stripe_refunds", "http_action", "supplier_invoices"]


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""])
    return head.encode() + body


HOSTILE = {
    "no JSON": http(b"<html>fine</html>"),
    "a list": http(b"[]"),
    "a number": http(b"7"),
    "null": http(b"null"),
    "nothing": http(b""),
    "no reference": http(b'{"status":"succeeded"}'),
    "wrong types": http(b'{"id":{"a":1},"object":7,"status":["x"],"amount":"1","currency":5,"metadata":"x"}'),
    "rows of other things": http(b'{"object":"list","data":[1,null,"x"],"has_more":false}'),
    "rows without members": http(b'{"object":"list","data":[{}],"has_more":false}'),
    "deep": http(b"[" * 60_000 + b"]" * 60_000),
    "a number of many digits": http(b'{"id":' + b"9" * 5000 + b"}"),
    "huge": http(b'{"id":"' + b"x" * 400_000 + b'"}'),
    "broken UTF-8": http(b'{"id":"\xff\xfe"}'),
    "somewhere else": http(b"", "302 Found", "Location: http://127.0.0.1:1/"),
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "cut short": b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{",
    "silence": b"",
    "a header without end": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000,
    "no such status": http(b"{}", "799 Odd"),
}


@contextmanager
def answering(said: bytes, *, listens_first: bool = True) -> Iterator[int]:
    """A server that says this to everyone, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    try:
                        if listens_first:
                            client.recv(65_536)
                        client.sendall(said)
                        client.shutdown(socket.SHUT_WR)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("peer", HTTP, indirect=True)
def test_an_answer_nobody_understands_is_uncertain_and_never_an_exception(peer: Peer, said: bytes) -> None:
    with answering(said) as port:
        sink, sink_settings = peer.made(port)
        order = replace(peer.grant(), sink_settings=sink_settings)
        try:
            answer = sink.send(order, timeout=SECONDS)
            found = sink.look_up(order, timeout=SECONDS)
        finally:
            end(sink)
    assert isinstance(answer, Uncertain), answer
    assert isinstance(found, Uncertain), found


@pytest.mark.parametrize("peer", HTTP, indirect=True)
def test_a_server_that_drips_is_left_at_the_deadline(peer: Peer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            client, _ = listener.accept()
            with client:
                try:
                    for letter in "HTTP/1.1 200 OK\r\nX-Slow: " + "y" * 1000:
                        client.sendall(letter.encode())
                        time.sleep(0.05)
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        sink, sink_settings = peer.made(listener.getsockname()[1])
        began = time.monotonic()
        answer = sink.send(replace(peer.grant(), sink_settings=sink_settings), timeout=1.0)
        assert time.monotonic() - began < 15.0
        thread.join()
    assert isinstance(answer, Uncertain)


def _moment(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)
