"""What a sink's answer, or the lack of one, amounts to. Anything not positively known is Uncertain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from ledger.claims import Grant


@dataclass(frozen=True, slots=True)
class Receipt:
    """The sink confirms the effect: its own reference, its status, and the answer as it came.

    ``key`` is our key on the sink's own record, where a look-up found one there.
    """

    reference: str
    status: str
    answer: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None


@dataclass(frozen=True, slots=True)
class NotSent:
    """Nothing left this machine: no connection came about."""

    note: str


@dataclass(frozen=True, slots=True)
class Busy:
    """The sink did nothing and says so; ``retry_after`` in seconds where it names a time."""

    note: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class InProgress:
    """The sink is processing an earlier request with this key."""

    note: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A definite refusal; ``reason`` is the sink's code. ``final``: no earlier attempt can act any more either."""

    reason: str
    note: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Uncertain:
    """It may have happened. ``stored``: the sink keeps this answer under the key; a repeat brings nothing new.

    ``wait``: when to look again, in seconds, where somebody knows better than the usual back-off.
    """

    note: str
    stored: bool = False
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class Fenced:
    """The sink has seen a higher token: this worker's grant is over, and its write was refused."""

    note: str


@dataclass(frozen=True, slots=True)
class Absent:
    """The sink was asked, all pages, and shows no effect under this key."""


@dataclass(frozen=True, slots=True)
class Differs:
    """The sink has an effect under this key or reference, with other content than was ordered."""

    receipt: Receipt
    note: str


@dataclass(frozen=True, slots=True)
class Undone:
    """The sink shows the effect under this key and says that it does not stand: it failed later, or was canceled."""

    receipt: Receipt
    note: str


Answer = Receipt | NotSent | Busy | InProgress | Refused | Uncertain | Fenced
Found = Receipt | Differs | Undone | Absent | Uncertain | Fenced


class Connector(Protocol):
    """One kind of sink. Neither call raises for what the sink does; what it raises all the same is Uncertain."""

    def identity(self, sink_settings: Mapping[str, Any]) -> str:
        """Which system owns the effect, e.g. the host; the same for every way that leads there, never a secret."""

    def send(self, grant: Grant, *, timeout: float) -> Answer:
        """One request on the wire, the order's bytes under the grant's key; ``timeout`` in seconds."""

    def look_up(self, grant: Grant, *, timeout: float) -> Found:
        """Asks the sink's own records for the effect of this key; never causes one."""


@runtime_checkable
class TakesMany(Protocol):
    """A sink that takes many orders in one call, each with an answer of its own."""

    def send_many(self, grants: Sequence[Grant], *, timeout: float) -> Sequence[Answer]:
        """One request on the wire for all of them; answers in the grants' order. ``timeout`` in seconds."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect in a sink's own listing. ``key`` is our marker on it, None where it carries none of ours."""

    reference: str
    key: str | None
    amount_minor: int | None
    currency: str | None
    status: str
    reversed: bool
    happened_at: datetime


@dataclass(frozen=True, slots=True)
class Page:
    """A stretch of a listing, in the sink's own order; ``cursor`` names the next one, None after the last."""

    effects: Sequence[Effect]
    cursor: str | None


@runtime_checkable
class Listing(Protocol):
    """A sink that can list its effects, for reconciliation. Paged by a key of its own order, never by an offset."""

    def list_effects(
        self,
        sink_settings: Mapping[str, Any],
        *,
        since: datetime,
        until: datetime,
        cursor: str | None,
        timeout: float,
    ) -> Page:
        """Effects that happened from ``since`` to ``until``, after the cursor. Raises SinkAway."""


@runtime_checkable
class ListsIfTold(Protocol):
    """A connector whose sinks list their effects only where the tool's settings say how."""

    def can_list(self, sink_settings: Mapping[str, Any]) -> bool:
        """Whether these settings do."""


class SinkAway(Exception):
    """The sink did not answer the question; nothing is known from it. Ask again later."""
