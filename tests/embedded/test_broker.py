import base64
import json
import logging
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from kombu import Connection, Exchange, Queue
from kombu.simple import SimpleQueue

from config.embedded import broker

EACH = 2_000  # messages of each sender


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    with connect(tmp_path) as connection:
        yield connection


def test_two_senders_and_two_readers_lose_nothing_tear_nothing_and_read_nothing_twice(tmp_path: Path) -> None:
    readers = [run(READER, tmp_path) for _ in range(2)]
    senders = [run(SENDER, tmp_path, name, str(EACH)) for name in ("left", "right")]
    assert [sender.communicate()[1] or sender.returncode for sender in senders] == [0, 0]
    with connect(tmp_path) as connection, connection.SimpleQueue("bell") as queue:
        for _ in readers:
            queue.put(None)

    read = [json.loads(reader.communicate()[0]) for reader in readers]

    expected = {f"{name} {number}": 1 for name in ("left", "right") for number in range(EACH)}
    assert Counter(message for messages in read for message in messages) == expected
    assert all(read), "One reader took everything: the test says nothing about two."
    assert list((tmp_path / "messages").iterdir()) == []


def test_messages_come_in_the_order_they_were_sent(connection: Connection) -> None:
    with connection.SimpleQueue("bell") as queue:
        for number in range(20):
            queue.put(number)

        assert [take(queue) for _ in range(20)] == list(range(20))


def test_an_unfinished_message_is_not_seen(connection: Connection, tmp_path: Path) -> None:
    with connection.SimpleQueue("bell") as queue:
        (tmp_path / "messages" / "00000000000000000001_a.bell.msg.part").write_text('{"half": ')

        with pytest.raises(Empty):
            queue.get_nowait()


def envelope(**changes: Any) -> str:
    """A task's message as Celery sends it, but for the changes."""
    properties = {
        "delivery_tag": "t",
        "delivery_info": {"exchange": "", "routing_key": "bell"},
        "body_encoding": "base64",
    }
    body = base64.b64encode(b"[[], {}, {}]").decode()
    headers = {"task": "workers.execute", "id": "i"}
    message = {
        "body": body,
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": headers,
    }
    return json.dumps({**message, "properties": properties, **changes})


UNREADABLE = ["", "{", '{"half": ', "[]", '"x"', "{}", "null", "7", "[" * 100_000]
FORGED = [
    envelope(properties=None),
    envelope(properties={"delivery_tag": 1}),
    envelope(headers=None),
    envelope(body=5),
    envelope(body="no base64"),
    envelope(body=base64.b64encode(b'{"a": 1}').decode()),
    envelope(body=base64.b64encode(b"[1, 2, 3]").decode()),
    envelope(**{"content-type": ["x"]}),
    envelope(**{"content-encoding": "no such"}),
]


def test_a_task_as_celery_sends_it_is_well_formed() -> None:
    assert broker._read(envelope()) is not None


@pytest.mark.parametrize("content", [*UNREADABLE, *FORGED], ids=lambda content: content[:12])
def test_an_unreadable_message_is_dropped_with_a_warning_and_the_next_one_is_read(
    content: str, connection: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with connection.SimpleQueue("bell") as queue:
        (tmp_path / "messages" / "00000000000000000001_a.bell.msg").write_text(content)
        queue.put("whole")

        assert take(queue) == "whole"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_binding_that_another_process_is_just_making_is_no_error(
    connection: Connection, tmp_path: Path
) -> None:
    with connection.channel() as channel:
        (tmp_path / "control" / "news.exchange").touch()

        assert bound_to_news(channel) == []
        queue = Queue("reader", Exchange("news", type="fanout"), channel=channel)
        queue.declare()
        queue.declare()
        assert bound_to_news(channel) == ["reader"]


def test_the_polling_interval_is_an_option(tmp_path: Path) -> None:
    options = broker.transport_options(tmp_path, polling_interval=0.5)

    assert polling_interval(connect(tmp_path)) == broker.POLLING_INTERVAL
    assert polling_interval(Connection(broker.URL, transport_options=options)) == 0.5


def test_a_sender_goes_on_as_soon_as_the_broker_is_back(connection: Connection, tmp_path: Path) -> None:
    with connection.SimpleQueue("bell") as queue:
        (tmp_path / "messages").rmdir()
        (tmp_path / "messages").touch()
        with pytest.raises(connection.connection_errors):
            queue.put("lost")
        (tmp_path / "messages").unlink()

        queue.put("rung")

        assert take(queue) == "rung"


def test_a_folder_that_is_gone_counts_as_a_broker_that_is_down(
    connection: Connection, tmp_path: Path
) -> None:
    with connection.SimpleQueue("bell") as queue:
        (tmp_path / "messages").rmdir()

        with pytest.raises(connection.connection_errors):
            queue.get_nowait()


def connect(folder: Path) -> Connection:
    return Connection(broker.URL, transport_options=broker.transport_options(folder))


def polling_interval(connection: Connection) -> float:
    assert isinstance(connection.transport, broker.Transport)
    return connection.transport.polling_interval


def bound_to_news(channel: Any) -> list[str]:
    return [binding.queue for binding in channel.get_table("news")]


def take(queue: SimpleQueue) -> object:
    message = queue.get_nowait()
    message.ack()
    return message.payload


def run(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


SENDER = """
    import sys
    from pathlib import Path
    from tests.embedded.test_broker import connect
    folder, name, count = sys.argv[1:]
    with connect(Path(folder)) as connection, connection.SimpleQueue("bell") as queue:
        for number in range(int(count)):
            queue.put(f"{name} {number}")
"""

READER = """
    import json, sys
    from pathlib import Path
    from tests.embedded.test_broker import connect
    with connect(Path(sys.argv[1])) as connection, connection.SimpleQueue("bell") as queue:
        read = []
        while True:
            message = queue.get(timeout=60)
            message.ack()
            if message.payload is None:
                break
            read.append(message.payload)
    print(json.dumps(read))
"""
