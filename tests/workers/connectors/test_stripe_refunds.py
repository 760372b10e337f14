"""Where refunds go: the sandbox unless a key of Stripe's is configured, and never through anything in between."""

import hashlib
import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from pytest_django.fixtures import Settings

from ledger.claims import Grant
from tests.sandbox.conftest import SandboxProcess
from tests.workers.connectors.peers import grant
from workers.connectors import stripe_refunds
from workers.connectors.answers import Absent, NotSent, Receipt, SinkAway, Uncertain
from workers.connectors.expected import Expected
from workers.connectors.stripe_refunds import StripeRefunds
from workers.connectors.stripe_wire import left
from workers.connectors.wire import BadSetting

SECONDS = 5.0


@pytest.mark.parametrize(
    ("key", "host"), [("", "http://127.0.0.1:9"), ("sk_test_x", "https://api.stripe.com")]
)
def test_a_configured_key_and_nothing_else_leads_to_stripe(settings: Settings, key: str, host: str) -> None:
    settings.STRIPE_API_KEY, settings.SANDBOX_URL = key, "http://127.0.0.1:9"
    client = StripeRefunds.from_settings()._client
    assert client._requestor._options.base_addresses["api"] == host
    assert client._requestor._options.max_network_retries == 0


def test_no_proxy_stands_between_us_and_the_provider(
    sandbox: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    sink = StripeRefunds(api_key="sk_test_x", base_url=sandbox.url)
    assert isinstance(sink.send(refund(), timeout=SECONDS), Receipt)
    sink.close()


def test_all_pages_of_a_look_up_are_asked_for_within_one_time(
    sandbox: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stripe_refunds, "_PAGE", 1)
    sink = StripeRefunds(api_key="sk_test_x", base_url=sandbox.url)
    order = refund()
    for _ in range(3):
        sink.send(replace(order, key=uuid4().hex), timeout=SECONDS)
    assert isinstance(sink.look_up(order, timeout=SECONDS), Absent)
    sandbox.order_fault("hang_list", charge=json.loads(order.body)["charge"], seconds=0.3, times=9)
    began = time.monotonic()
    assert isinstance(sink.look_up(order, timeout=0.5), Uncertain)  # the second page would be there in time
    assert time.monotonic() - began < 2.0
    sink.close()


def test_a_connection_is_kept_for_the_next_call(sandbox: SandboxProcess) -> None:
    sink = StripeRefunds(api_key="sk_test_x", base_url=sandbox.url)
    for _ in range(3):
        assert isinstance(sink.send(refund(), timeout=SECONDS), Receipt)
    assert len(sink._http._connections.connections) == 1
    sink.close()


ACCOUNT = "acct_" + hashlib.sha256(b"sk_test_x").hexdigest()[:16]  # as the sandbox names the key's account


def test_the_account_that_the_tool_names_is_asked_for_once_and_used(sandbox: SandboxProcess) -> None:
    sink = StripeRefunds(api_key="sk_test_x", base_url=sandbox.url)
    began = len(asked_for_accounts(sandbox))
    for _ in range(3):
        order = refund(sink_settings={"account": ACCOUNT})
        assert isinstance(sink.send(order, timeout=SECONDS), Receipt)
        assert isinstance(sink.look_up(order, timeout=SECONDS), Receipt)
    assert len(asked_for_accounts(sandbox)) == began + 1
    assert ACCOUNT in sink.identity({"account": ACCOUNT})
    sink.close()


def test_a_key_of_another_account_sends_nothing_looks_nothing_up_and_lists_nothing(
    sandbox: SandboxProcess,
) -> None:
    order = refund(sink_settings={"account": ACCOUNT})
    first = StripeRefunds(api_key="sk_test_x", base_url=sandbox.url)
    assert isinstance(first.send(order, timeout=SECONDS), Receipt)
    elsewhere = StripeRefunds(api_key="sk_test_other", base_url=sandbox.url)
    answer, found = elsewhere.send(order, timeout=SECONDS), elsewhere.look_up(order, timeout=SECONDS)
    assert isinstance(answer, NotSent)
    assert isinstance(found, Uncertain)  # absent there proves nothing here
    assert ACCOUNT in answer.note
    assert "correct the environment" in found.note
    now = datetime.now(UTC)
    with pytest.raises(SinkAway, match=ACCOUNT):
        elsewhere.list_effects(order.sink_settings, since=now, until=now, cursor=None, timeout=SECONDS)
    assert len(sandbox.effects(charge=json.loads(order.body)["charge"])) == 1
    first.close()
    elsewhere.close()


def test_while_the_account_cannot_be_asked_nothing_is_sent(sandbox: SandboxProcess) -> None:
    unknown = StripeRefunds(api_key="no_key_at_all", base_url=sandbox.url)
    assert isinstance(unknown.send(refund(sink_settings={"account": ACCOUNT}), timeout=SECONDS), NotSent)
    unknown.close()
    nobody = StripeRefunds(api_key="sk_test_x", base_url="http://127.0.0.1:9")
    with pytest.raises(BadSetting):
        nobody.identity({"account": 7})


def test_nothing_leaves_once_asking_for_the_account_has_taken_the_time(sandbox: SandboxProcess) -> None:
    def stopped_meanwhile(_timeout: float) -> str:
        while left() > 0:
            time.sleep(0.01)
        return ACCOUNT

    sink = StripeRefunds(api_key="sk_test_x", base_url=sandbox.url)
    assert isinstance(sink.send(refund(), timeout=SECONDS), Receipt)  # the connection is there
    sink._account = Expected("account", stopped_meanwhile)
    order = refund(sink_settings={"account": ACCOUNT})
    assert isinstance(sink.send(order, timeout=0.05), NotSent)
    assert sandbox.effects(charge=json.loads(order.body)["charge"]) == []
    sink.close()


def asked_for_accounts(sandbox: SandboxProcess) -> list[Any]:
    return [each for each in sandbox.requests() if each["path"] == "/v1/account"]


def refund(**changes: Any) -> Grant:
    body = json.dumps({"charge": f"ch_{uuid4().hex}", "amount": 10, "currency": "EUR"})
    return grant(body=body, **changes)
