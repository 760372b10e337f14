"""Mail: what each moment of the conversation proves, against a real server, a hostile one, and the sandbox's."""

import json
from dataclasses import replace
from email import message_from_bytes, policy
from typing import Any
from uuid import uuid4

import pytest

from ledger.states import EnforcementClass
from tests.workers.connectors.peers import MailServer, grant
from tests.workers.connectors.test_conformance import SECONDS, answering
from workers.connectors.answers import Answer, Busy, NotSent, Receipt, Refused, Uncertain
from workers.connectors.smtp_mail import SmtpMail, message_id


def order(server: MailServer, to: str = "kim@customer.example", **changes: Any) -> Any:
    body = {"to": to, "subject": "Your parcel", "text": "It is late.\n.\n.Sorry\n", **changes}
    settings = {**server.sink_settings, "port": server.port}
    return grant(body=json.dumps(body), sink_settings=settings, enforcement=EnforcementClass.NONE)


def send(what: Any) -> Answer:
    return SmtpMail().send(what, timeout=SECONDS)


def test_a_mail_arrives_as_it_was_ordered_under_a_name_made_from_the_key(mail_server: MailServer) -> None:
    sent = order(mail_server, subject="Grüße & Maße")
    answer = send(sent)
    assert isinstance(answer, Receipt)
    assert answer.reference == message_id(sent) == f"<{sent.key}@countersign.shop.example>"
    raw = mail_server.received[-1].original_content
    assert isinstance(raw, bytes)
    arrived = message_from_bytes(raw, policy=policy.default)
    assert (arrived["Message-ID"], arrived["Subject"]) == (answer.reference, "Grüße & Maße")
    body = arrived.get_body()
    assert body is not None
    assert body.get_content().splitlines() == ["It is late.", ".", ".Sorry"]


AT_THE_SERVER = [
    ("nobody@customer.example", Refused),
    ("grey@customer.example", Busy),
    ("full@customer.example", Busy),
    ("spam@customer.example", Refused),
    ("closing@customer.example", Uncertain),
    ("odd@customer.example", Receipt),
    ("worse@customer.example", Uncertain),
]


@pytest.mark.parametrize(("to", "kind"), AT_THE_SERVER)
def test_what_the_servers_word_comes_to(mail_server: MailServer, to: str, kind: type) -> None:
    assert isinstance(send(order(mail_server, to)), kind)


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": "Hi\r\nBcc: x@y.example"},
        {"to": "a@b.example\n"},
        {"to": "a@b.example>\r\nRCPT TO:<x@y.example"},
        {"to": "a@b.example, c@d.example"},
        {"to": "jürgen@customer.example"},
        {"to": "nobody"},
        {"to": 7},
    ],
)
def test_an_order_that_is_no_mail_is_refused_and_nothing_leaves(
    mail_server: MailServer, changes: dict[str, Any]
) -> None:
    before = len(mail_server.received)
    answer = send(order(mail_server, **changes))
    assert isinstance(answer, Refused), answer
    assert answer.reason == "bad_message"
    assert len(mail_server.received) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "mail.example", "security": "none"},
        {"security": "ssl"},
        {"from": "shop"},
        {"host": None},
        {"password_env": "SECRET_KEY"},
        {"password_env": "SINK_MISSING"},
    ],
)
def test_settings_that_cannot_be_used_send_nothing(mail_server: MailServer, changes: dict[str, Any]) -> None:
    made = order(mail_server)
    answer = send(replace(made, sink_settings={**made.sink_settings, **changes}))
    assert isinstance(answer, NotSent), answer


HOSTILE = {
    "nothing": b"",
    "no greeting": b"SSH-2.0\r\n",
    "not now": b"421 busy\r\n",
    "never": b"554 go away\r\n",
    "a long line": b"220 " + b"x" * 100_000 + b"\r\n",
    "no number": b"abc def\r\n",
    "NUL": b"2\x000 hi\r\n",
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_server_that_never_takes_the_message_had_none(mail_server: MailServer, said: bytes) -> None:
    with answering(said, listens_first=False) as port:
        made = order(mail_server, f"{uuid4().hex}@customer.example")
        answer = send(replace(made, sink_settings={**made.sink_settings, "port": port}))
    assert isinstance(answer, NotSent | Busy | Refused), answer


def test_a_server_without_starttls_is_sent_nothing(mail_server: MailServer) -> None:
    made = order(mail_server)
    answer = send(replace(made, sink_settings={**made.sink_settings, "security": "starttls"}))
    assert isinstance(answer, NotSent)
