"""Connectors by the name a tool version gives. A new sink is one module here and one line in the table."""

from collections.abc import Callable
from functools import cache

from workers.connectors.answers import Connector
from workers.connectors.owned_ledger import OwnedLedger
from workers.connectors.stripe_refunds import StripeRefunds


class UnknownConnector(LookupError):
    """The tool version names a connector this worker does not have. Deploy the same version everywhere."""


@cache
def connector(name: str) -> Connector:
    """The connector of this name, made once a process. Raises UnknownConnector."""
    makers: dict[str, Callable[[], Connector]] = {
        "stripe_refunds": StripeRefunds.from_settings,
        "owned_ledger": OwnedLedger.from_settings,
    }
    if name not in makers:
        raise UnknownConnector(f"{UnknownConnector.__doc__} It is {name!r}.")
    return makers[name]()
