"""The effects of any HTTP service, a page at a time: the ``list`` of a tool's ``http_action`` settings.

    "list": {"url": "https://erp.example/actions?from={since}&to={until}&after={cursor}&limit=200",
             "items": "/data", "next": "/next", "key": "/key", "reference": "/id", "happened_at": "/created",
             "amount": "/amount", "currency": "/currency", "status": "/status", "undone": ["void"]}

``since`` and ``until`` are RFC 3339 in UTC; ``cursor`` is what the page before had at ``next``, as long as it had
something there. The first page is asked for without that member of the query. ``key``, ``reference``, ``happened_at``
(RFC 3339, or whole seconds since 1970), ``amount`` (minor units), ``currency`` and ``status`` point into one item.
Effects with a status of ``undone`` no longer stand. A page is smaller than 256 kB, and in an order that a newcomer
does not disturb.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

from workers.connectors.answers import Effect, Page, SinkAway
from workers.connectors.wire import BadSetting, Said, address, ask, found_at, host_of, text_at

_PLACES = ("{since}", "{until}", "{cursor}")
_POINTERS: Mapping[str, str] = {
    "items": "/data",
    "next": "/next",
    "key": "/key",
    "reference": "/id",
    "happened_at": "/created",
    "amount": "",
    "currency": "",
    "status": "/status",
}
"""Where each stands unless the settings say otherwise; empty: the sink names none."""
_MOST_CURSOR = 400
"""Characters; what a pass that was cut short remembers."""


@dataclass(frozen=True, slots=True)
class HttpListing:
    """What the settings say of the listing, found usable."""

    url: str
    at: Mapping[str, str]
    undone: Sequence[str]

    @classmethod
    def read(cls, sink_settings: Mapping[str, Any]) -> "HttpListing | None":
        """The listing that the settings describe; None where they describe none. Raises BadSetting."""
        given = sink_settings.get("list")
        if given is None:
            return None
        if not isinstance(given, dict) or given.keys() - {"url", "undone", *_POINTERS}:
            raise BadSetting(f"list has url, undone, {', '.join(_POINTERS)}, and nothing else.")
        url = address(given)
        query = urlsplit(url).query
        if host_of(url) != host_of(address(sink_settings)) or any(query.count(each) != 1 for each in _PLACES):
            words = (
                f"list.url is at the same host as url, and has {', '.join(_PLACES)} in its query, each once."
            )
            raise BadSetting(words)
        return cls(url, _pointers(given), _undone(given))

    def page(
        self,
        headers: Mapping[str, str],
        *,
        since: datetime,
        until: datetime,
        cursor: str | None,
        timeout: float,
    ) -> Page:
        """One page. Raises SinkAway, also for one that is not as the settings say: a row may not go unseen."""
        url = self._filled(since.astimezone(UTC).isoformat(), until.astimezone(UTC).isoformat(), cursor)
        said = ask("GET", url, headers=headers, timeout=timeout)
        if not isinstance(said, Said):
            raise SinkAway(f"The listing got no answer: {said.note}")
        items = found_at(said.content, self.at["items"])
        if said.status != 200 or not isinstance(items, list):
            raise SinkAway(f"The listing was answered with something else: {said.words}")
        return Page([self._effect(each) for each in items], self._next(said.content))

    def _filled(self, since: str, until: str, cursor: str | None) -> str:
        path, _, query = self.url.partition("?")
        members = query.split("&")
        if cursor is None:  # many a sink refuses an empty one
            members = [each for each in members if "{cursor}" not in each]
        url = f"{path}?{'&'.join(members)}"
        for place, value in zip(_PLACES, (since, until, cursor or ""), strict=True):
            url = url.replace(place, quote(value, safe=""))
        return url

    def _next(self, content: Any) -> str | None:
        if found_at(content, self.at["next"]) in (None, "", False):
            return None
        cursor = text_at(content, self.at["next"])
        if cursor is None or len(cursor) > _MOST_CURSOR or "\0" in cursor:
            raise SinkAway(f"What the listing has at {self.at['next']} names no next page.")
        return cursor

    def _effect(self, item: Any) -> Effect:
        reference = text_at(item, self.at["reference"])
        if reference is None:
            raise SinkAway(f"The listing has an item without anything at {self.at['reference']}.")
        status = text_at(item, self.at["status"]) or "listed"
        currency = self._told(item, "currency")
        if not (currency is None or isinstance(currency, str)):
            raise SinkAway(f"{reference} has something else than a currency at {self.at['currency']}.")
        return Effect(
            reference=reference,
            key=text_at(item, self.at["key"]),
            amount_minor=self._amount(item, reference),
            currency=currency.upper() if currency else None,
            status=status,
            reversed=status in self.undone,
            happened_at=self._moment(item, reference),
        )

    def _told(self, item: Any, name: str) -> Any:
        return found_at(item, self.at[name]) if self.at[name] else None

    def _amount(self, item: Any, reference: str) -> int | None:
        """Minor units; other forms of an amount are not guessed at."""
        amount = self._told(item, "amount")
        if isinstance(amount, bool) or not (amount is None or isinstance(amount, int)):
            raise SinkAway(f"{reference} has no whole number of minor units at {self.at['amount']}.")
        return amount

    def _moment(self, item: Any, reference: str) -> datetime:
        told = found_at(item, self.at["happened_at"])
        try:
            if isinstance(told, int) and not isinstance(told, bool):
                return datetime.fromtimestamp(told, UTC)
            moment = datetime.fromisoformat(told)
        except (TypeError, ValueError, OverflowError, OSError) as error:
            raise SinkAway(f"{reference} has no time at {self.at['happened_at']}: {error}") from error
        if moment.tzinfo is None:
            raise SinkAway(f"{reference} has a time without its zone at {self.at['happened_at']}.")
        return moment


def _pointers(given: Mapping[str, Any]) -> dict[str, str]:
    pointers = {name: given.get(name, usual) for name, usual in _POINTERS.items()}
    for name, pointer in pointers.items():
        if not isinstance(pointer, str) or not (pointer.startswith("/") or pointer == _POINTERS[name] == ""):
            raise BadSetting(f"list.{name} is a pointer such as /{name}.")
    if pointers["amount"] and not pointers["currency"]:
        raise BadSetting("list.currency says where the amount's currency is: an amount alone is no money.")
    return pointers


def _undone(given: Mapping[str, Any]) -> list[str]:
    undone = given.get("undone", [])
    if not isinstance(undone, list) or not all(isinstance(each, str) for each in undone):
        raise BadSetting('list.undone is a list of statuses such as ["void"].')
    return undone
