"""Connectors by the name a tool version gives. A new sink is one module here and one line in the table."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from workers.connectors.answers import Connector
from workers.connectors.http_action import HttpAction
from workers.connectors.owned_ledger import OwnedLedger
from workers.connectors.smtp_mail import SmtpMail
from workers.connectors.stripe_refunds import StripeRefunds
from workers.connectors.supplier_invoices import SupplierInvoices


class UnknownConnector(LookupError):
    """The tool version names a connector this worker does not have. Deploy the same version everywhere."""


_MAKERS: dict[str, Callable[[], Connector]] = {
    "http_action": HttpAction,
    "owned_ledger": OwnedLedger.from_settings,
    "smtp_mail": SmtpMail,
    "stripe_refunds": StripeRefunds.from_settings,
    "supplier_invoices": SupplierInvoices,
}
NAMES = tuple(_MAKERS)


@cache
def connector(name: str) -> Connector:
    """The connector of this name, made once a process. Raises UnknownConnector."""
    return _maker(name)()


def identity(name: str, sink_settings: Mapping[str, Any]) -> str:
    """Which system a connector of this name reaches with these settings. Raises UnknownConnector and BadSetting.

    One of its own: the processes that publish have no other use for it.
    """
    return _maker(name)().identity(sink_settings)


def _maker(name: str) -> Callable[[], Connector]:
    if name not in _MAKERS:
        raise UnknownConnector(f"{UnknownConnector.__doc__} It is {name!r}.")
    return _MAKERS[name]
