"""Things that go wrong on demand: each fault strikes the next calls it matches, then is spent.

A fault with a charge strikes only creates on that charge and lists filtered by it: many tests can share one
sandbox. Of a supplier payment the charge is the supplier, of an action its target, of a mail its recipient; a
fault with a kind strikes only that kind of effect. A call that its parameters or its key turn away takes no
fault. A replay meets what happens on the wire and in front of the endpoint; what decides the outcome of an
execution waits for one. Faults are kept in memory: a sandbox that was killed comes back without them.
"""

import asyncio
import time
from dataclasses import asdict, dataclass, field

DROP_BEFORE_COMMIT = "drop_before_commit"  # closed before anything happened
DROP_AFTER_COMMIT = "drop_after_commit"  # the effect happened, closed without an answer
HANG_BEFORE_COMMIT = "hang_before_commit"  # waits, then goes on as if nothing had been: the effect comes late
HANG_AFTER_COMMIT = "hang_after_commit"  # the effect happened, its answer comes late
CONFLICT = "conflict"  # 409, as while another call holds the key; nothing happened
RATE_LIMIT = "rate_limit"  # 429 with Retry-After; nothing happened
ERROR_BEFORE_COMMIT = "error_before_commit"  # 500, kept under the key; nothing happened
ERROR_AFTER_COMMIT = "error_after_commit"  # 500, kept under the key; the effect happened
DECLINE = "decline"  # 402, kept under the key; nothing happened
LIST_LAG = "list_lag"  # lists do not show effects younger than `seconds`
HANG_LIST = "hang_list"
ERROR_LIST = "error_list"
DROP_LIST = "drop_list"

STRIKE_REPLAYS = frozenset(
    {DROP_BEFORE_COMMIT, DROP_AFTER_COMMIT, HANG_BEFORE_COMMIT, HANG_AFTER_COMMIT, CONFLICT, RATE_LIMIT}
)
STRIKE_EXECUTIONS = STRIKE_REPLAYS | {ERROR_BEFORE_COMMIT, ERROR_AFTER_COMMIT, DECLINE}
STRIKE_LISTS = frozenset({HANG_LIST, ERROR_LIST, DROP_LIST})
LAG_LISTS = frozenset({LIST_LAG})
NAMES = sorted(STRIKE_EXECUTIONS | STRIKE_LISTS | LAG_LISTS)

KINDS = ("refund", "payable", "action", "mail")  # of effect


@dataclass(slots=True)
class Fault:
    """`times` counts down with every call struck; None: until `seconds` have passed since it was set."""

    fault: str
    times: int | None
    seconds: float
    charge: str | None = None
    kind: str | None = None
    set_at: float = field(default_factory=time.monotonic)

    @property
    def is_spent(self) -> bool:
        if self.times is None:
            return time.monotonic() >= self.set_at + self.seconds
        return self.times <= 0


class Faults:
    def __init__(self) -> None:
        self._pending: list[Fault] = []
        self._hanging: set[asyncio.Event] = set()

    def add(self, fault: Fault) -> None:
        self._pending.append(fault)

    def take(self, names: frozenset[str], *charges: str | None, kind: str = "refund") -> Fault | None:
        """Spend one strike of the oldest fault that is among `names` and meant for one of `charges`."""
        self._forget_spent()
        for fault in self._pending:
            if fault.fault in names and fault.charge in (None, *charges) and fault.kind in (None, kind):
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None

    async def hang(self, seconds: float) -> None:
        """Hold the calling request, and no other, until the time is over or `clear` lets everyone go."""
        released = asyncio.Event()
        self._hanging.add(released)
        try:
            async with asyncio.timeout(seconds):
                await released.wait()
        except TimeoutError:
            pass
        finally:
            self._hanging.discard(released)

    def pending(self) -> list[dict[str, object]]:
        self._forget_spent()
        return [
            {name: value for name, value in asdict(fault).items() if name != "set_at"}
            for fault in self._pending
        ]

    def clear(self) -> tuple[int, int]:
        """Forget every pending fault and release every hanging request; answer how many of each."""
        cleared, released = len(self.pending()), len(self._hanging)
        self._pending.clear()
        for event in self._hanging:
            event.set()
        return cleared, released

    def _forget_spent(self) -> None:
        self._pending = [fault for fault in self._pending if not fault.is_spent]
