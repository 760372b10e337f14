"""Events that the provider sends by itself, signed as Stripe signs them.

Stripe documentation: "Types of events" (refund.created, refund.updated), "Resolve webhook signature verification
errors" (`Stripe-Signature: t=…,v1=…`, an HMAC-SHA256 over time and body). Delivered at least once, in no order, and
again while they are not answered with 2xx. What goes wrong with them is ordered as with every other fault.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping

from sandbox.faults import Fault
from sandbox.wire import to_json

EARLY = "event_early"  # before the answer to the call that caused it
TWICE = "event_twice"  # each event a second time, with the same id
LATE = "event_late"  # after so many seconds
OUT_OF_ORDER = "event_out_of_order"  # the newest first
LOST = "event_lost"  # never
FAULTS = frozenset({EARLY, TWICE, LATE, OUT_OF_ORDER, LOST})

PAUSES = (0.5, 2.0, 8.0)  # seconds before each further delivery of an event that was not answered with 2xx
PATIENCE = 5.0  # seconds for one delivery

Event = dict[str, object]


class Events:
    """Sends to one address, once it is told which."""

    def __init__(self) -> None:
        self._url = ""
        self._secret = ""
        self._under_way: set[asyncio.Task[None]] = set()

    def aim(self, url: str, secret: str) -> None:
        """Sends to this address from now on, signed with this secret; to none for ``""``."""
        self._url, self._secret = url, secret

    async def announce(self, refund: Mapping[str, object], fault: Fault | None = None) -> None:
        """Call it when the refund is made, before its answer leaves; what is not early goes out by itself."""
        name = fault.fault if fault else None
        if not self._url or name == LOST:
            return
        seconds = fault.seconds if fault and name == LATE else 0.0
        sending = self._send(list(_events(refund, name)), after=seconds)
        if name == EARLY:
            await sending
        else:
            task = asyncio.get_running_loop().create_task(sending)
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        """Gives up what is under way: the provider stops."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _send(self, events: list[Event], *, after: float) -> None:
        await asyncio.sleep(after)
        for event in events:
            await self._deliver(to_json(event))

    async def _deliver(self, body: str) -> None:
        """Until it is answered with 2xx, with growing pauses, then no more."""
        for pause in (*PAUSES, None):
            if await asyncio.to_thread(self._post, body) or pause is None:
                return
            await asyncio.sleep(pause)

    def _post(self, body: str) -> bool:
        headers = {"Content-Type": "application/json", "Stripe-Signature": signature(body, self._secret)}
        request = urllib.request.Request(self._url, body.encode(), headers, method="POST")  # noqa: S310  ours
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
                return bool(200 <= answer.status < 300)
        except (OSError, ValueError):  # an HTTP error is an OSError, too
            return False


def signature(body: str, secret: str, *, at: float | None = None) -> str:
    """The header's value: the time in whole seconds, and the HMAC over it and the body."""
    moment = int(time.time() if at is None else at)
    digest = hmac.new(secret.encode(), f"{moment}.{body}".encode(), hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


def _events(refund: Mapping[str, object], fault: str | None) -> Iterator[Event]:
    """Created as pending, then updated to what it is: both may bear the same second."""
    events = [
        _event("refund.created", {**refund, "status": "pending"}),
        _event("refund.updated", refund),
    ]
    if fault == OUT_OF_ORDER:
        events.reverse()
    for event in events:
        yield event
        if fault == TWICE:
            yield event


def _event(kind: str, about: Mapping[str, object]) -> Event:
    return {
        "id": f"evt_{secrets.token_hex(12)}",
        "object": "event",
        "created": int(time.time()),
        "type": kind,
        "data": {"object": dict(about)},
        "livemode": False,
    }
