"""Sinks kept in memory, one of each enforcement class, each with exactly what its class promises and nothing more.

They stand in the connectors' own table, beside the product's. ``weather`` is what befalls the next request, ``sight``
whether the next look-up is answered; a request that is ``on_its_way`` has left its worker and not yet arrived.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import count
from typing import Any

import pytest

from ledger.claims import Grant
from workers import connectors
from workers.connectors.answers import (
    Absent,
    Answer,
    Busy,
    Connector,
    Differs,
    Effect,
    Fenced,
    Found,
    InProgress,
    NotSent,
    Page,
    Receipt,
    Refused,
    Uncertain,
)


class Weather(Enum):
    """What befalls a request."""

    FINE = "fine"
    UNREACHABLE = "no connection comes about"
    BUSY = "the sink does nothing and says so"
    REFUSES = "the sink refuses it"
    BREAKS = "the sink breaks, nothing is done, and nobody can tell"
    BREAKS_FOR_GOOD = "the same, and a provider keeps that answer under the key"
    ANSWER_LOST = "it is done, and nobody hears of it"
    DELAYED = "it is on its way for longer than anybody waits"
    PROCESSING = "it has arrived, and is worked on for longer than anybody waits"


@dataclass(frozen=True, slots=True)
class Happened:
    """An effect, as its sink has it."""

    reference: str
    key: str
    order: Mapping[str, Any]
    token: int
    at: datetime


@dataclass
class Peer:
    """What all of them have in common: the weather, and a memory."""

    name: str
    lists: bool = True
    weather: Weather = Weather.FINE
    sees: bool = True
    effects: list[Happened] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)
    """The reference of every receipt that somebody was given."""
    on_its_way: list[Grant] = field(default_factory=list)
    worked_on: list[Grant] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def identity(self, sink_settings: Mapping[str, Any]) -> str:
        return self.name

    def send(self, grant: Grant, *, timeout: float) -> Answer:
        match self.weather:
            case Weather.UNREACHABLE:
                return NotSent("No connection.")
            case Weather.BUSY:
                return Busy("Come again.")
            case Weather.BREAKS:
                return Uncertain("502")
            case Weather.DELAYED:
                self.on_its_way.append(grant)
                return Uncertain("Timed out.")
        if self.weather is Weather.PROCESSING and self.works_on_it(grant):
            self.worked_on.append(grant)
            return Uncertain("Timed out.")
        answer = self.take(grant, self.weather)
        return (
            Uncertain("The answer was lost.") if self.weather is Weather.ANSWER_LOST else self._given(answer)
        )

    def look_up(self, grant: Grant, *, timeout: float) -> Found:
        return self._given(self.find(grant)) if self.sees else Uncertain("The look-up got no answer.")

    def works_on_it(self, grant: Grant) -> bool:
        """Whether it is taken up at all, or answered at once."""
        return True

    def arrives(self, number: int) -> None:
        """A request that was on its way, or worked on, is done with, in this order or another."""
        coming = [*self.on_its_way, *self.worked_on]
        grant = coming[number % len(coming)]
        (self.on_its_way if grant in self.on_its_way else self.worked_on).remove(grant)
        self.take(grant, Weather.FINE)

    def take(self, grant: Grant, weather: Weather) -> Answer:
        """The sink's own contract: what a request that has arrived comes to."""
        raise NotImplementedError

    def find(self, grant: Grant) -> Found:
        """The sink's own records."""
        raise NotImplementedError

    def day_passes(self, length: timedelta) -> None:
        """No request is on its way for so long: what had not arrived never will."""
        self.on_its_way, self.worked_on = [], []
        self.effects = [replace(each, at=each.at - length) for each in self.effects]

    def forget(self) -> None:
        """An empty sink in fine weather."""
        self.weather, self.sees = Weather.FINE, True
        self.effects, self.receipts, self.on_its_way, self.worked_on = [], [], [], []

    def _happens(self, grant: Grant) -> Receipt:
        order = json.loads(grant.body)
        effect = Happened(
            f"{self.name}-{next(self._numbers)}", grant.key, order, grant.token, datetime.now(UTC)
        )
        self.effects.append(effect)
        return _receipt(effect)

    def _given(self, answer: Any) -> Any:
        if isinstance(answer, Receipt):
            self.receipts.append(answer.reference)
        return answer


class Lists(Peer):
    """A sink that can list its effects."""

    def list_effects(
        self,
        sink_settings: Mapping[str, Any],
        *,
        since: datetime,
        until: datetime,
        cursor: str | None,
        timeout: float,
    ) -> Page:
        return Page([_listed(each) for each in self.effects if since <= each.at <= until], None)


@dataclass
class ProviderKey(Lists):
    """Answers a key it has with its first answer, for as long as the window lasts. ``ignores_keys`` is a broken one."""

    ignores_keys: bool = False
    kept: dict[str, Answer] = field(default_factory=dict)

    def take(self, grant: Grant, weather: Weather) -> Answer:
        if grant.key in {each.key for each in self.worked_on}:
            return InProgress("This key is being worked on.")
        if grant.key in self.kept and not self.ignores_keys:
            return self.kept[grant.key]
        self.kept[grant.key] = answer = self._first(grant, weather)
        return answer

    def _first(self, grant: Grant, weather: Weather) -> Answer:
        if weather is Weather.REFUSES:
            return Refused("declined", "The card says no.")
        if weather is Weather.BREAKS_FOR_GOOD:
            return Uncertain("500", stored=True)
        return self._happens(grant)

    def find(self, grant: Grant) -> Found:
        return next((_receipt(each) for each in self.effects if each.key == grant.key), Absent())

    def works_on_it(self, grant: Grant) -> bool:
        return grant.key not in self.kept and grant.key not in {each.key for each in self.worked_on}

    def day_passes(self, length: timedelta) -> None:
        super().day_passes(length)
        self.kept = {}

    def forget(self) -> None:
        super().forget()
        self.kept = {}


@dataclass
class OwnedWrite(Lists):
    """Key, content and the highest token it has seen, in one step. ``ignores_fence`` is a broken one."""

    ignores_fence: bool = False
    fences: dict[str, int] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)

    def take(self, grant: Grant, weather: Weather) -> Answer:
        known = self.find(grant)
        if not isinstance(known, Absent):
            return (
                known if isinstance(known, Receipt | Fenced) else Uncertain("Another content.", stored=True)
            )
        if weather in (Weather.REFUSES, Weather.BREAKS_FOR_GOOD):
            return Refused("refused", "The change says no.", final=True)
        self.contents[grant.key] = grant.fingerprint
        return self._happens(grant)

    def find(self, grant: Grant) -> Found:
        known = next((_receipt(each) for each in self.effects if each.key == grant.key), None)
        if known is not None and self.contents[grant.key] != grant.fingerprint:
            return Differs(known, "The key stands for other content.")
        if self.fences.get(grant.resource, 0) > grant.token and not self.ignores_fence:
            return Fenced(f"Token {grant.token} is over.")
        self.fences[grant.resource] = max(grant.token, self.fences.get(grant.resource, 0))
        return known or Absent()

    def forget(self) -> None:
        super().forget()
        self.fences, self.contents = {}, {}


@dataclass
class NaturalReference(Lists):
    """Refuses a reference that it has; knows nothing of keys, but may keep ours as a memo."""

    keeps_keys: bool = True

    def take(self, grant: Grant, weather: Weather) -> Answer:
        if not isinstance(self.find(grant), Absent):
            return Refused("already_entered", "There is one of this reference.")
        if weather in (Weather.REFUSES, Weather.BREAKS_FOR_GOOD):
            return Refused("declined", "The supplier is blocked.")
        return self._shown(self._happens(grant))

    def find(self, grant: Grant) -> Found:
        order = json.loads(grant.body)
        for each in self.effects:
            if each.order["reference"] != order["reference"]:
                continue
            if self.keeps_keys and each.key != grant.key:
                return Differs(_receipt(each), "It was entered under another key of ours.")
            if each.order != order:
                return Differs(self._shown(_receipt(each)), "It has another amount.")
            return self._shown(_receipt(each))
        return Absent()

    def _shown(self, receipt: Receipt) -> Receipt:
        return receipt if self.keeps_keys else replace(receipt, key=None)


@dataclass
class Nothing(Peer):
    """Does what it is told as often as it is told, and cannot be asked."""

    def take(self, grant: Grant, weather: Weather) -> Answer:
        if weather in (Weather.REFUSES, Weather.BREAKS_FOR_GOOD):
            return Refused("declined", "No such address.")
        return self._happens(grant)

    def find(self, grant: Grant) -> Found:
        return Uncertain("This sink cannot be asked.")


def _receipt(effect: Happened) -> Receipt:
    return Receipt(effect.reference, "done", {"id": effect.reference}, key=effect.key)


def _listed(effect: Happened) -> Effect:
    return Effect(
        reference=effect.reference,
        key=effect.key,
        amount_minor=effect.order.get("amount"),
        currency=effect.order.get("currency"),
        status="done",
        reversed=False,
        happened_at=effect.at,
    )


@contextmanager
def registered(peers: Sequence[Peer]) -> Iterator[None]:
    """The connectors' table with these beside the product's own."""
    with pytest.MonkeyPatch.context() as patch:
        for peer in peers:
            patch.setitem(connectors._MAKERS, peer.name, _maker(peer))
        connectors.connector.cache_clear()
        yield
    connectors.connector.cache_clear()


def _maker(peer: Connector) -> Any:
    return lambda: peer
