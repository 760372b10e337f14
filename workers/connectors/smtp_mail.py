"""Mail over SMTP: nothing at a mail server keeps one from arriving twice, or tells afterwards whether it arrived.

    {"host": "mail.example", "port": 587, "from": "Notices <notices@shop.example>",
     "security": "starttls", "user": "notices", "password_env": "SINK_MAIL_PASSWORD"}

``security`` is starttls (the default), tls, or none (this machine only). The order is {"to", "subject", "text"}. One
connection a mail; its Message-ID is made from the key, so that people and mailboxes can tell a second copy (RFC 5322,
3.6.4). Until the final dot has left nothing can have happened; from then on only the server's word counts (RFC 5321,
4.2.5, 6.1).
"""

import json
import smtplib
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email import policy
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from typing import Any

from ledger.claims import Grant
from workers.connectors.answers import Answer, Busy, Found, NotSent, Receipt, Refused, Uncertain
from workers.connectors.deadlines import cut_at
from workers.connectors.wire import BadSetting, secret

_SECURITY = ("starttls", "tls", "none")
_AT_HOME = ("127.0.0.1", "::1", "localhost")
_UNFOLDED = policy.SMTP.clone(max_line_length=200)
"""A Message-ID that is folded is not found again by every program on the way."""
_CLOSING = 421
"""The server is going away: said after the final dot, it leaves open whether it took the mail along."""


class SmtpMail:
    """Hands one message to a mail server."""

    def identity(self, sink_settings: Mapping[str, Any]) -> str:
        """Host and port of the server. Raises BadSetting."""
        host, port = _place(sink_settings)
        _sender(sink_settings)
        return f"{host}:{port}"

    def send(self, grant: Grant, *, timeout: float) -> Answer:
        """One SMTP transaction; ``timeout`` in seconds is for all of it."""
        try:
            message = _message(grant)
            place = _place(grant.sink_settings)
            password = secret(grant.sink_settings, "password_env")
        except BadSetting as error:
            return NotSent(str(error))
        except (MessageError, ValueError, KeyError, TypeError) as error:
            return Refused("bad_message", f"This is no mail: {error}")
        return _Delivery(grant.sink_settings, place, password, time.monotonic() + timeout).send(message)

    def look_up(self, grant: Grant, *, timeout: float) -> Found:
        """Never asked: no mail server tells."""
        return Uncertain("A mail server cannot be asked what it has sent.")


def message_id(grant: Grant) -> str:
    """``<key@countersign.DOMAIN>``, of the domain that sends."""
    return f"<{grant.key}@countersign.{_sender(grant.sink_settings).domain}>"


def _message(grant: Grant) -> EmailMessage:
    """The mail; a line break in an address or the subject is an error, not a header of its own."""
    order = json.loads(grant.body)
    message = EmailMessage(policy=_UNFOLDED)
    message["From"] = str(grant.sink_settings["from"])
    message["To"] = Address(addr_spec=_ascii(_text(order, "to")))
    message["Subject"] = _text(order, "subject")
    message["Message-ID"] = message_id(grant)
    message["Date"] = formatdate()
    message.set_content(_text(order, "text"))
    return message


def _text(order: Mapping[str, Any], name: str) -> str:
    text = order[name]
    if not isinstance(text, str):
        raise TypeError(f"{name} is a text.")
    return text


def _ascii(address: str) -> str:
    if not address.isascii():
        raise ValueError(f"{address!r} needs SMTPUTF8, which not every server on the way speaks.")
    return address


def _sender(sink_settings: Mapping[str, Any]) -> Address:
    try:
        return Address(addr_spec=parseaddr(str(sink_settings.get("from", "")))[1])
    except (MessageError, ValueError, IndexError) as error:
        raise BadSetting("from is a mail address, such as notices@shop.example.") from error


def _place(sink_settings: Mapping[str, Any]) -> tuple[str, int]:
    host, port = sink_settings.get("host"), sink_settings.get("port", 587)
    if not isinstance(host, str) or not host or not isinstance(port, int):
        raise BadSetting("host and port name the mail server.")
    security = sink_settings.get("security", "starttls")
    if security not in _SECURITY or (security == "none" and host not in _AT_HOME):
        raise BadSetting("security is starttls or tls (none on this machine only).")
    return host.lower(), port


class _Delivery:
    """One connection, cut at the deadline however slowly the server drips."""

    def __init__(
        self, sink_settings: Mapping[str, Any], place: tuple[str, int], password: str | None, deadline: float
    ) -> None:
        self._settings = sink_settings
        self._place = place
        self._password = password
        self._deadline = deadline

    def send(self, message: EmailMessage) -> Answer:
        try:
            with self._connection() as server, cut_at(self._deadline, lambda: _fileno(server)):
                return self._transaction(server, message)
        except smtplib.SMTPResponseException as error:
            return _refusal(error.smtp_code, error.smtp_error)
        except (
            OSError,
            ssl.SSLError,
            smtplib.SMTPException,
        ) as error:  # before the final dot: see _handed_over
            return NotSent(f"{self._place[0]}: {type(error).__name__} {error}")

    @contextmanager
    def _connection(self) -> Iterator[smtplib.SMTP]:
        left = max(self._deadline - time.monotonic(), 0.001)
        context = ssl.create_default_context()
        server = (
            smtplib.SMTP_SSL(*self._place, timeout=left, context=context)
            if self._settings.get("security") == "tls"
            else smtplib.SMTP(*self._place, timeout=left)
        )
        try:
            yield server
        finally:
            server.close()

    def _transaction(self, server: smtplib.SMTP, message: EmailMessage) -> Answer:
        server.ehlo_or_helo_if_needed()
        if self._settings.get("security", "starttls") == "starttls":
            server.starttls(context=ssl.create_default_context())
        if self._password is not None:
            server.login(str(self._settings.get("user", "")), self._password)
        for command in (
            f"MAIL FROM:<{_sender(self._settings).addr_spec}>",
            f"RCPT TO:<{message['To'].addresses[0].addr_spec}>",
        ):
            code, words = server.docmd(command)
            if not 200 <= code < 300:
                return _refusal(code, words)
        code, words = server.docmd("DATA")
        return _handed_over(server, message) if code == 354 else _refusal(code, words)


def _handed_over(server: smtplib.SMTP, message: EmailMessage) -> Answer:
    """The message, and then the dot: without it the server must not deliver, after it only its answer tells."""
    text = message.as_bytes().replace(b"\r\n.", b"\r\n..")
    server.send(text if text.endswith(b"\r\n") else text + b"\r\n")
    reference = str(message["Message-ID"])
    try:
        server.send(b".\r\n")
        code, words = server.getreply()
    except (OSError, smtplib.SMTPException) as error:
        return Uncertain(f"No answer after the end of {reference}: {type(error).__name__} {error}")
    said = f"{code}: {words.decode('utf-8', 'replace')}"
    if 200 <= code < 300:
        return Receipt(
            reference, "accepted", {"message_id": reference, "to": str(message["To"]), "said": said}
        )
    if code == _CLOSING or not 400 <= code < 600:
        return Uncertain(f"{said}, after the end of {reference}")
    return _refusal(code, words)


def _refusal(code: int, words: bytes | str) -> Answer:
    """4yz: not now; 5yz: never. Both before the server took responsibility."""
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else words
    return Refused(f"smtp_{code}", f"{code}: {text}") if 500 <= code < 600 else Busy(f"{code}: {text}")


def _fileno(server: smtplib.SMTP) -> int:
    """Of the socket it has now: STARTTLS puts another in its place."""
    if server.sock is None:
        raise OSError("The connection is closed.")
    return server.sock.fileno()
