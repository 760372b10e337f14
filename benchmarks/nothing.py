"""A sink that does nothing, at once: what remains of the time is our own work."""

from collections.abc import Mapping
from typing import Any

from ledger.claims import Grant
from workers.connectors.answers import Absent, Answer, Found, Page, Receipt


class Nothing:
    """Confirms every order at once."""

    def identity(self, sink_settings: Mapping[str, Any]) -> str:
        """Nowhere."""
        return "nothing"

    def send(self, grant: Grant, *, timeout: float) -> Answer:
        """A receipt for what did not have to happen."""
        return Receipt(grant.key, "done", key=grant.key)

    def look_up(self, grant: Grant, *, timeout: float) -> Found:
        """Nothing is kept."""
        return Absent()

    def list_effects(self, sink_settings: Mapping[str, Any], **_: Any) -> Page:
        """Nothing to list."""
        return Page([], None)
