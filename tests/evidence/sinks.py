"""The sinks of the matrix: one entry each. A sink says how it is asked, how it is counted, and what it can be told."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx

from config.demo import seed
from ledger.states import EnforcementClass
from tests.crashes.gate import Gate
from tests.crashes.stage import PATIENCE, OwnLedger, Provider, Sink
from tests.sandbox.conftest import SandboxProcess

_TOKEN = "SINK_EVIDENCE_TOKEN"
_AMOUNT = {"amount_minor": {"type": "integer", "minimum": 1}, "currency": {"type": "string"}}


@dataclass
class AtSandbox:
    """A service of the sandbox that a tool's own settings lead to, always through the gate."""

    sandbox: SandboxProcess
    gate: Gate
    name: str
    action: str
    request: bytes
    version: dict[str, Any]
    kind: str
    gives: Callable[[str], dict[str, Any]]
    subject: str = field(default_factory=lambda: f"s{os.urandom(6).hex()}")

    def parameters(self) -> dict[str, Any]:
        return self.gives(self.about)

    @property
    def about(self) -> str:
        """What the sandbox calls the charge: supplier, target, recipient."""
        return f"{self.subject}@customer.example" if self.kind == "mail" else self.subject

    def environment(self, *, gated: bool) -> dict[str, str]:
        return {_TOKEN: "sk_test_evidence"}

    def effects(self) -> list[str]:
        return effects_at(self.sandbox.url, self.about, self.kind)

    def fault(self, name: str, **fields: Any) -> None:
        """Orders a fault for this test's subject; a look-up by key names none."""
        named = None if self.kind == "action" and "list" in name else self.about
        body = {"fault": name, "charge": named, "kind": self.kind, **fields}
        httpx.post(f"{self.sandbox.url}/_sandbox/faults", json=body, timeout=PATIENCE).raise_for_status()


def effects_at(url: str, about: str, kind: str) -> list[str]:
    """The key of each effect, counted by the sandbox itself."""
    listed = httpx.get(
        f"{url}/_sandbox/effects", params={"charge": about, "kind": kind}, timeout=PATIENCE
    ).json()
    return [str(each["idempotency_key"]).strip(" <") for each in listed]  # a Message-ID may be folded


@dataclass(frozen=True, slots=True)
class Places:
    """Where sinks are: a sandbox, and an own ledger through its gate."""

    sandbox: SandboxProcess
    own: Callable[[], OwnLedger]


@dataclass(frozen=True, slots=True)
class Entry:
    """One sink of the matrix. ``faults``: those of the sandbox's that can strike it."""

    enforcement: EnforcementClass
    make: Callable[[Places], Sink]
    faults: tuple[str, ...] = ()


def _schema(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def _refunds(places: Places) -> Sink:
    gate = Gate(("127.0.0.1", places.sandbox.port))
    return Provider(places.sandbox.url, gate, request=b"countersign_key")  # in the body, as below


def _actions(places: Places) -> Sink:
    gate = Gate(("127.0.0.1", places.sandbox.port))
    url = f"http://127.0.0.1:{gate.port}/actions"
    version = {
        **seed.REFUND,
        "title": "Set a price",
        "sentence": "Set {item} to {amount}",
        "schema": _schema(item={"type": "string"}, **_AMOUNT),
        "connector": "http_action",
        "sink": "erp",
        "order": {"target": "{item}", "amount": "{amount_minor}"},
        "sink_settings": {
            "url": url,
            "look_up": {"url": f"{url}?key={{key}}"},
            "token_env": _TOKEN,
            "compare": {"/amount": "/amount"},
            "answers": {"402": "refused", "409": "in_progress"},
        },
    }
    return AtSandbox(
        places.sandbox,
        gate,
        name="http_action",
        action="set_price",
        request=b'"target"',  # in the body: nothing of the request is left behind
        version=version,
        kind="action",
        gives=lambda about: {"item": about, "amount_minor": 1200, "currency": "EUR"},
    )


def _invoices(places: Places) -> Sink:
    gate = Gate(("127.0.0.1", places.sandbox.port))
    version = {
        **seed.REFUND,
        "title": "Pay an invoice",
        "sentence": "Pay {amount} to {supplier}",
        "schema": _schema(supplier={"type": "string"}, **_AMOUNT),
        "enforcement": EnforcementClass.NATURAL_REFERENCE,
        "connector": "supplier_invoices",
        "sink": "payables",
        "order": {
            "supplier": "{supplier}",
            "invoice": "{reference}/{step}",
            "amount": "{amount_minor}",
            "currency": "{currency}",
        },
        "key_window": None,
        "settle_time": timedelta(seconds=1),
        "sink_settings": {"url": f"http://127.0.0.1:{gate.port}", "token_env": _TOKEN},
    }
    return AtSandbox(
        places.sandbox,
        gate,
        name="supplier_invoices",
        action="pay_invoice",
        request=b'"supplier"',
        version=version,
        kind="payable",
        gives=lambda about: {"supplier": about, "amount_minor": 1200, "currency": "EUR"},
    )


def _mail(places: Places) -> Sink:
    gate = Gate(("127.0.0.1", places.sandbox.mail_port or 0))
    version = {
        **seed.REFUND,
        "title": "Send a notice",
        "sentence": "Write to {to}",
        "schema": _schema(to={"type": "string"}),
        "enforcement": EnforcementClass.NONE,
        "connector": "smtp_mail",
        "sink": "mail",
        "order": {"to": "{to}", "subject": "Notice {reference}", "text": "Your order is on its way"},
        "amount_field": "",
        "currency_field": "",
        "value_limits": {},
        "key_window": None,
        "sink_settings": {
            "host": "127.0.0.1",
            "port": gate.port,
            "from": "Demo notices <notices@demo.example>",
            "security": "none",
        },
    }
    return AtSandbox(
        places.sandbox,
        gate,
        name="smtp_mail",
        action="send_notice",
        request=b".\r\n",  # the dot that makes it count
        version=version,
        kind="mail",
        gives=lambda about: {"to": about},
    )


_ON_THE_WIRE = (
    "drop_before_commit",
    "drop_after_commit",
    "hang_before_commit",
    "hang_after_commit",
    "rate_limit",
    "decline",
)
_OF_A_SERVICE = (*_ON_THE_WIRE, "conflict", "error_before_commit", "error_after_commit")
_OF_A_LIST = ("list_lag", "hang_list", "error_list", "drop_list")
_OF_EVENTS = ("event_early", "event_twice", "event_late", "event_out_of_order", "event_lost")

SINKS: Mapping[str, Entry] = {
    "stripe_refunds": Entry(
        EnforcementClass.PROVIDER_KEY, _refunds, (*_OF_A_SERVICE, *_OF_A_LIST, *_OF_EVENTS)
    ),
    "http_action": Entry(EnforcementClass.PROVIDER_KEY, _actions, (*_OF_A_SERVICE, *_OF_A_LIST)),
    "owned_ledger": Entry(EnforcementClass.OWNED_WRITE, lambda places: places.own()),
    "supplier_invoices": Entry(EnforcementClass.NATURAL_REFERENCE, _invoices, (*_OF_A_SERVICE, *_OF_A_LIST)),
    "smtp_mail": Entry(EnforcementClass.NONE, _mail, _ON_THE_WIRE),
}


def faults_of(sink: Sink) -> Callable[..., None]:
    """Orders a fault at a sink of the sandbox's."""
    assert isinstance(sink, Provider | AtSandbox)
    return sink.fault
