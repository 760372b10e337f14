"""The real peers of every connector, each behind a gate that can lose an answer: what the shared tests speak to."""

import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from ledger.claims import Grant
from ledger.states import EnforcementClass, OperationState
from tests.crashes.gate import Gate
from tests.sandbox.conftest import SandboxProcess
from workers.connectors.answers import Connector
from workers.connectors.http_action import HttpAction
from workers.connectors.owned_ledger import OwnedLedger
from workers.connectors.smtp_mail import SmtpMail
from workers.connectors.stripe_refunds import StripeRefunds
from workers.connectors.supplier_invoices import SupplierInvoices

TOKEN = "SINK_TEST_TOKEN"
ONCE = (EnforcementClass.PROVIDER_KEY, EnforcementClass.OWNED_WRITE, EnforcementClass.NATURAL_REFERENCE)

Made = tuple[Connector, dict[str, Any]]


@dataclass
class Peer:
    """One connector and its sink. ``made`` reaches it through a port of this machine."""

    name: str
    enforcement: EnforcementClass
    request: bytes
    """What marks the request that has the effect, on the wire."""
    address: str | tuple[str, int]
    made: Callable[[int], Made]
    order: Callable[[], dict[str, Any]]
    count: Callable[[Grant], int]
    """Effects of this order, counted at the sink."""
    gate: Gate = field(init=False)
    sink: Connector = field(init=False)
    sink_settings: dict[str, Any] = field(init=False)

    def __enter__(self) -> "Peer":
        self.gate = Gate(self.address)
        self.sink, self.sink_settings = self.made(self.gate.port)
        return self

    def __exit__(self, *_: object) -> None:
        end(self.sink)
        self.gate.cut()

    def grant(self, **changes: Any) -> Grant:
        """A first grant on an order of its own."""
        return grant(
            body=json.dumps(self.order()),
            enforcement=self.enforcement,
            sink_settings=self.sink_settings,
            **changes,
        )

    def other(self, of: Grant) -> Grant:
        """The same identity with another amount, or other words."""
        order = json.loads(of.body)
        order |= {name: value for name, value in {"amount": 7, "subject": "Other"}.items() if name in order}
        return replace(of, body=json.dumps(order), fingerprint="0" * 64)

    def lose_the_answer(self) -> None:
        """The next request has its effect, and nobody hears of it."""
        hold = self.gate.hold("answer", self.request)
        hold.dropped = True
        hold.released.set()


def grant(**changes: Any) -> Grant:
    """A first grant on a resource and under a key of its own, but for the changes."""
    made = Grant(
        order_id=1,
        tenant_id=UUID(int=1),
        key=uuid4().hex,
        fingerprint="f" * 64,
        subject=1,
        body="{}",
        tool="tool",
        connector="connector",
        enforcement=EnforcementClass.PROVIDER_KEY,
        resource=f"order:{uuid4().hex}",
        number=1,
        token=481,
        state=OperationState.STARTED,
        maybe_sent=False,
        may_send=True,
        key_window_left=86_400.0,
        answer_stored=False,
        in_progress_count=0,
        sink_settings={},
        settle_time=1.0,
        since_sent=None,
    )
    return replace(made, **changes)


def end(sink: Connector) -> None:
    """Closes what a connector holds open."""
    if isinstance(sink, OwnedLedger | StripeRefunds):
        sink.close()


def stripe_refunds(sandbox: SandboxProcess) -> Peer:
    def made(port: int) -> Made:
        return StripeRefunds(api_key="sk_test_peer", base_url=f"http://127.0.0.1:{port}"), {}

    return Peer(
        name="stripe_refunds",
        enforcement=EnforcementClass.PROVIDER_KEY,
        request=b"POST /v1/refunds",
        address=("127.0.0.1", sandbox.port),
        made=made,
        order=lambda: {"charge": f"ch_{uuid4().hex}", "amount": 1200, "currency": "EUR"},
        count=lambda of: len(sandbox.effects(charge=json.loads(of.body)["charge"])),
    )


def http_action(sandbox: SandboxProcess) -> Peer:
    def made(port: int) -> Made:
        url = f"http://127.0.0.1:{port}/actions"
        looked_up = {"url": f"{url}?key={{key}}"}
        listed = {
            "url": f"{url}?since={{since}}&until={{until}}&after={{cursor}}&limit=2",
            "amount": "/amount",
            "currency": "/currency",
        }
        return HttpAction(), {
            "url": url,
            "look_up": looked_up,
            "list": listed,
            "token_env": TOKEN,
            "compare": {"/amount": "/amount"},
            "answers": {"409": "in_progress"},
        }

    return Peer(
        name="http_action",
        enforcement=EnforcementClass.PROVIDER_KEY,
        request=b"POST /actions",
        address=("127.0.0.1", sandbox.port),
        made=made,
        order=lambda: {"target": f"config:{uuid4().hex}", "amount": 1200},
        count=lambda of: len(sandbox.effects(charge=json.loads(of.body)["target"])),
    )


def supplier_invoices(sandbox: SandboxProcess) -> Peer:
    def made(port: int) -> Made:
        return SupplierInvoices(), {"url": f"http://127.0.0.1:{port}", "token_env": TOKEN}

    return Peer(
        name="supplier_invoices",
        enforcement=EnforcementClass.NATURAL_REFERENCE,
        request=b"POST /payables",
        address=("127.0.0.1", sandbox.port),
        made=made,
        order=lambda: {"supplier": uuid4().hex, "invoice": "R-1", "amount": 1200, "currency": "EUR"},
        count=lambda of: len(sandbox.effects(charge=json.loads(of.body)["supplier"])),
    )


def owned_ledger(url: str, address: str | tuple[str, int]) -> Peer:
    place = psycopg.conninfo.conninfo_to_dict(url)

    def made(port: int) -> Made:
        there = f"postgresql://{place['user']}@127.0.0.1:{port}/{place['dbname']}?sslmode=disable"
        return OwnedLedger(there), {}

    def count(of: Grant) -> int:
        with psycopg.connect(url) as own:
            row = own.execute("SELECT count(*) FROM countersign.refund WHERE key = %s", [of.key]).fetchone()
        assert row is not None
        return int(row[0])

    return Peer(
        name="owned_ledger",
        enforcement=EnforcementClass.OWNED_WRITE,
        request=b"countersign.apply",
        address=address,
        made=made,
        order=lambda: {"order": "order:1", "amount": 1200, "currency": "EUR"},
        count=count,
    )


def smtp_mail(server: "MailServer") -> Peer:
    def made(port: int) -> Made:
        return SmtpMail(), {**server.sink_settings, "port": port}

    return Peer(
        name="smtp_mail",
        enforcement=EnforcementClass.NONE,
        request=b".\r\n",
        address=("127.0.0.1", server.port),
        made=made,
        order=lambda: {"to": f"{uuid4().hex}@customer.example", "subject": "Notice", "text": "Hello"},
        count=server.count,
    )


class MailServer:
    """A real mail server in a thread; recipients tell it what to answer."""

    def __init__(self) -> None:
        self.received: list[Envelope] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)
        self._controller.start()
        self.sink_settings: Mapping[str, Any] = {
            "host": "127.0.0.1",
            "from": "Notices <notices@shop.example>",
            "security": "none",
        }

    def close(self) -> None:
        self._controller.stop()

    def count(self, of: Grant) -> int:
        return sum(of.key.encode() in (each.original_content or b"") for each in self.received)

    async def handle_RCPT(  # noqa: N802  aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address.startswith("nobody"):
            return "550 no such person"
        if address.startswith("grey"):
            return "450 come back later"
        envelope.rcpt_tos.append(address)
        return "250 fine"

    async def handle_DATA(  # noqa: N802  aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        to = envelope.rcpt_tos[0]
        for beginning, answer in _AT_THE_DOT.items():
            if to.startswith(beginning):
                return answer
        self.received.append(envelope)
        return "250 taken"


_AT_THE_DOT = {
    "full": "452 no room now",
    "spam": "554 refused",
    "closing": "421 going away",
    "odd": "299 whatever",
    "worse": "700 whatever",
}
