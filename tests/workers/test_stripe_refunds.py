"""Where refunds go: the sandbox unless a key of Stripe's is configured, and never through anything in between."""

import pytest
import stripe
from pytest_django.fixtures import Settings
from requests.adapters import HTTPAdapter

from workers.connectors.stripe_refunds import StripeRefunds


@pytest.mark.parametrize(
    ("key", "host"), [("", "http://127.0.0.1:9"), ("sk_test_x", "https://api.stripe.com")]
)
def test_a_configured_key_and_nothing_else_leads_to_stripe(settings: Settings, key: str, host: str) -> None:
    settings.STRIPE_API_KEY, settings.SANDBOX_URL = key, "http://127.0.0.1:9"
    client = StripeRefunds.from_settings()._client(timeout=1.0)
    assert client._requestor._options.base_addresses["api"] == host
    assert client._requestor._options.max_network_retries == 0


def test_no_proxy_and_no_redirect_stands_between_us_and_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    session = StripeRefunds(api_key="sk_test_x", base_url=None)._session
    assert (session.trust_env, session.max_redirects) == (False, 0)
    adapter = session.get_adapter(stripe.DEFAULT_API_BASE)
    assert isinstance(adapter, HTTPAdapter)
    assert adapter.max_retries.total == 0
