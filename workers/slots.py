"""How many calls one worker has on the wire, in all and by tool: a sink is never given more claims than can be sent.

A connector that takes many orders in one call needs one slot for them all.
"""

import threading
from collections import Counter
from collections.abc import Sequence

from ledger.claims import Grant
from ledger.models import ToolVersion
from ledger.states import EnforcementClass
from workers.connectors import UnknownConnector, connector
from workers.connectors.answers import TakesMany

MOST_TOGETHER = 50
"""Orders in one call, for connectors that take many: more make each transaction slower than they save."""
_CALLS_TOGETHER = 3
"""Such calls of one tool at once: one is recorded and one sent while the next is claimed."""
_ONE_AT_A_TIME = (EnforcementClass.NATURAL_REFERENCE, EnforcementClass.NONE)


class Slots:
    """The calls in flight. Taken by the thread that claims, given back by the one that records."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls = 0
        self._orders: Counter[int] = Counter()
        self._limits: dict[int, int] = {}
        self._together: set[int] = set()
        self._guard = threading.Lock()

    @property
    def free(self) -> int:
        """Calls that can still be sent."""
        with self._guard:
            return max(self._most - self._calls, 0)

    @property
    def taken(self) -> int:
        """Calls whose outcome is not recorded yet."""
        with self._guard:
            return self._calls

    def take(self, call: Sequence[Grant]) -> None:
        """One more call is on its way, with the orders of these grants."""
        with self._guard:
            self._calls += 1
            self._orders.update(grant.tool_id for grant in call)

    def give_back(self, calls: int, grants: Sequence[Grant]) -> None:
        """So many calls have ended, and the outcomes of these grants are recorded."""
        with self._guard:
            self._calls -= calls
            self._orders.subtract(grant.tool_id for grant in grants)

    def room(self, calls: int, *, patient: bool = False) -> "Room":
        """What one claim may take when so many calls are free for it.

        ``patient``: tools that have room for a few only count as full. A claim costs as much for a few as for many.
        """
        with self._guard:
            return Room(calls, Counter(self._orders), self._limits, self._together, patient)


class Room:
    """The room of one claim: asked for each operation, in turn. What it learns of tools is kept for the next one."""

    def __init__(
        self,
        calls: int,
        orders: Counter[int],
        limits: dict[int, int],
        together: set[int],
        patient: bool = False,
    ) -> None:
        self._calls = calls
        self._orders = orders
        self._limits = limits
        self._together = together
        self.full = [
            tool_id
            for tool_id, limit in limits.items()
            if _is_full(limit, in_flight=orders[tool_id], patient=patient)
        ]
        """Tools that take nothing more: their operations need not even be looked at."""

    @property
    def most(self) -> int:
        """Operations that are worth locking: others' claims pass by what this one holds and then does not take."""
        return MOST_TOGETHER if self._together.difference(self.full) else min(self._calls, MOST_TOGETHER)

    def take(self, version: ToolVersion) -> bool:
        """Whether one more order of this tool may be granted; it then counts."""
        limit = self._limits[version.tool_id] = _limit(version)
        if together := takes_many(version.connector):
            self._together.add(version.tool_id)
        if self._orders[version.tool_id] >= limit or (self._calls <= 0 and not together):
            return False
        self._orders[version.tool_id] += 1
        self._calls -= 0 if together else 1
        return True


def _is_full(limit: int, *, in_flight: int, patient: bool) -> bool:
    worth_it = max(min(limit // 2, MOST_TOGETHER), 1) if patient else 1
    return limit - in_flight < worth_it


def takes_many(name: str) -> bool:
    """Whether the connector of this name sends many orders in one call."""
    try:
        return isinstance(connector(name), TakesMany)
    except UnknownConnector:
        return False


def _limit(version: ToolVersion) -> int:
    if version.enforcement in _ONE_AT_A_TIME:
        return 1  # each is recorded before the next leaves: what happened twice could never be told
    if takes_many(version.connector):
        return MOST_TOGETHER * _CALLS_TOGETHER
    return version.calls_in_flight
