"""Trying a tool's sink with test credentials: whether what its enforcement class claims is what the sink does.

A probe has real effects at the target the tool version names for it, and nowhere else; it writes no operation. What it
saw is stored, and is what the tool's page says from then on.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from threading import Barrier
from typing import Any

from django.conf import settings

from ledger import clock, tools
from ledger.claims import Grant
from ledger.models import Probe, ToolVersion
from ledger.states import EnforcementClass, OperationState
from workers.connectors import connector
from workers.connectors.answers import Absent, Answer, Busy, Connector, Fenced, Found, NotSent, Receipt

_LIVE = ("sk_live", "rk_live", "pk_live")
_PAUSE = 0.05
"""Seconds between two looks for an effect that does not show yet."""
_MOST_SEEN = 300


class NoProbe(Exception):
    """Nothing was tried, so nothing is known: the message says what the version or its sink lacks."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was claimed, whether it held (None: it could not be tried), and what was seen."""

    claim: str
    holds: bool | None
    seen: str


def probe(version: ToolVersion) -> Probe:
    """Tries every claim of the version's class once and stores what was seen.

    Raises NoProbe where nothing was sent, or the sink says that it did nothing: that is no answer, and not stored.
    """
    bench = _Bench(version)
    began_at = clock.now()
    observations = list(_CLAIMS[EnforcementClass(version.enforcement)](bench))
    return _stored(version, bench, began_at, observations)


def _stored(
    version: ToolVersion, bench: "_Bench", began_at: datetime, observations: list[Observation]
) -> Probe:
    return Probe.objects.create(
        tool_version=version,
        sink=bench.sink.identity(bench.sink_settings)[:200],
        passed=all(each.holds is not False for each in observations),
        observations=[
            {"claim": each.claim, "holds": each.holds, "seen": each.seen[:_MOST_SEEN]}
            for each in observations
        ],
        began_at=began_at,
    )


class _Bench:
    """What a probe works with: the sink, reached with test credentials, and grants that belong to no operation."""

    def __init__(self, version: ToolVersion) -> None:
        self.version = version
        self.target = _target(version)
        self.sink_settings = {**version.sink_settings, **self.target.get("sink_settings", {})}
        _refuse_live(version, self.sink_settings)
        self.sink: Connector = connector(version.connector)
        self._nonces: dict[str, str] = {}
        self.timeout = float(settings.EXECUTION.call_timeout)

    def grant(self, *, other: bool = False, of: Grant | None = None) -> Grant:
        """On an order of its own; with ``of`` the same identity, with ``other`` that with other content."""
        key = of.key if of is not None else secrets.token_hex(20)
        nonce = self._nonces.setdefault(key, secrets.token_hex(6).upper())
        return self._made(key, nonce, self._other() if other else self.target["parameters"])

    def _made(self, key: str, nonce: str, parameters: Mapping[str, Any]) -> Grant:
        filled = _filled(parameters, nonce)
        facts: dict[str, str | int] = {
            "reference": f"probe-{nonce}",
            "step": 1,
            "action": self.version.tool.name,
            "target": "probe",
        }
        facts |= _filled(self.target.get("facts", {}), nonce)
        if faults := tools.faults(self.version, filled):
            raise NoProbe(f"probe_target: {faults[0].pointer} {faults[0].detail}")
        rendered = tools.render(self.version, facts=facts, parameters=filled)
        return Grant(
            order_id=0,
            tenant_id=self.version.tool.tenant_id,
            key=key,
            fingerprint=sha256(rendered.body.encode()).hexdigest(),
            subject=0,
            body=rendered.body,
            tool=self.version.tool.name,
            connector=self.version.connector,
            enforcement=EnforcementClass(self.version.enforcement),
            resource=f"probe:{nonce}",
            number=1,
            token=2,
            state=OperationState.STARTED,
            maybe_sent=False,
            may_send=True,
            key_window_left=None,
            answer_stored=False,
            in_progress_count=0,
            sink_settings=self.sink_settings,
            settle_time=self.version.settle_time.total_seconds(),
            since_sent=None,
        )

    def _other(self) -> Mapping[str, Any]:
        parameters: Mapping[str, Any] = self.target["parameters"]
        if "other" in self.target:
            return {**parameters, **self.target["other"]}
        field = self.version.amount_field
        if not field:
            raise NoProbe("probe_target: other says which parameters make another content.")
        return {**parameters, field: parameters[field] + 1}

    def send(self, grant: Grant) -> Answer:
        return self.sink.send(grant, timeout=self.timeout)

    def send_first(self, grant: Grant) -> Answer:
        """A missing secret or a sink that is away says nothing about what the sink claims."""
        answer = self.send(grant)
        if isinstance(answer, NotSent | Busy):
            raise NoProbe(answer.note)
        return answer

    def look_up(self, grant: Grant) -> Found:
        return self.sink.look_up(grant, timeout=self.timeout)


def _target(version: ToolVersion) -> Mapping[str, Any]:
    target = version.probe_target
    if not isinstance(target, dict) or not isinstance(target.get("parameters"), dict):
        raise NoProbe(
            "The tool version names no probe_target: {facts, parameters, sink_settings} that a probe may use up."
        )
    return target


def _refuse_live(version: ToolVersion, sink_settings: Mapping[str, Any]) -> None:
    """A probe has effects: it takes test credentials that the version names for it, and never a live key."""
    named = {name: value for name, value in sink_settings.items() if name.endswith("_env")}
    same = [name for name, value in named.items() if version.sink_settings.get(name) == value]
    if same:
        raise NoProbe(f"probe_target: sink_settings names test credentials of its own for {', '.join(same)}.")
    values = [os.environ.get(str(value), "") for value in named.values()]
    if version.connector == "stripe_refunds":
        values.append(settings.STRIPE_API_KEY)
    if any(value.startswith(_LIVE) for value in values):
        raise NoProbe("These are live credentials. A probe takes test credentials only.")


def _filled(tree: Any, nonce: str) -> Any:
    if isinstance(tree, dict):
        return {name: _filled(value, nonce) for name, value in tree.items()}
    return tree.replace("{nonce}", nonce) if isinstance(tree, str) else tree


# What is claimed, and how it is tried.


def _keyed(bench: _Bench) -> Iterator[Observation]:
    grant = bench.grant()
    first = bench.send_first(grant)
    yield Observation("a first send is confirmed", isinstance(first, Receipt), _said(first))
    if not isinstance(first, Receipt):
        return
    yield _shows(bench, grant, first)
    again = bench.send(grant)
    same = isinstance(again, Receipt) and again.reference == first.reference
    yield Observation("the same key twice has one effect", same, _said(again))
    yield _conflict(bench, grant)
    yield _at_once(bench)


def _fenced(bench: _Bench) -> Iterator[Observation]:
    yield from _keyed(bench)
    grant = bench.grant()
    bench.look_up(replace(grant, token=3))
    stale = bench.send(grant)
    yield Observation("a worker whose grant is over is refused", isinstance(stale, Fenced), _said(stale))


def _referenced(bench: _Bench) -> Iterator[Observation]:
    grant = bench.grant()
    first = bench.send_first(grant)
    yield Observation("a first send is confirmed", isinstance(first, Receipt), _said(first))
    if not isinstance(first, Receipt):
        return
    yield _shows(bench, grant, first)
    again = bench.send(replace(grant, key=secrets.token_hex(20)))
    refused = not isinstance(again, Receipt)
    yield Observation("the same reference twice is refused", refused, _said(again))
    yield _conflict(bench, grant)
    yield _at_once(bench)


def _unkept(bench: _Bench) -> Iterator[Observation]:
    first = bench.send_first(bench.grant())
    yield Observation("a first send is confirmed", isinstance(first, Receipt), _said(first))
    yield Observation("nothing more is claimed of this sink", None, "It keeps no key and no reference.")


_CLAIMS: dict[EnforcementClass, Callable[[_Bench], Iterator[Observation]]] = {
    EnforcementClass.PROVIDER_KEY: _keyed,
    EnforcementClass.OWNED_WRITE: _fenced,
    EnforcementClass.NATURAL_REFERENCE: _referenced,
    EnforcementClass.NONE: _unkept,
}


def _shows(bench: _Bench, grant: Grant, first: Receipt) -> Observation:
    """How long until the sink's own records show the effect."""
    claim = "the effect shows within the settle time"
    began = time.monotonic()
    while isinstance(found := bench.look_up(grant), Absent):
        if time.monotonic() - began > grant.settle_time:
            return Observation(claim, False, f"absent after {grant.settle_time:g} s")
        time.sleep(_PAUSE)
    holds = isinstance(found, Receipt) and found.reference == first.reference
    return Observation(claim, holds, f"after {time.monotonic() - began:.2f} s: {_said(found)}")


def _conflict(bench: _Bench, grant: Grant) -> Observation:
    claim = "the same identity with other content is refused"
    try:
        other = bench.grant(of=grant, other=True)
    except NoProbe as why:
        return Observation(claim, None, str(why))
    answer = bench.send(other)
    return Observation(claim, not isinstance(answer, Receipt), _said(answer))


def _at_once(bench: _Bench) -> Observation:
    """Two sends of one order, from two threads that wait for each other."""
    grant, ready = bench.grant(), Barrier(2)

    def send(_: int) -> Answer:
        ready.wait()
        return bench.send(grant)

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(send, range(2)))
    made = {answer.reference for answer in answers if isinstance(answer, Receipt)}
    found = bench.look_up(grant)
    holds = len(made) == 1 and isinstance(found, Receipt | Absent)
    return Observation("two at once have one effect", holds, " and ".join(map(_said, answers)))


def _said(answer: Answer | Found) -> str:
    if isinstance(answer, Receipt):
        return f"receipt {answer.reference}"
    if isinstance(answer, Absent):
        return "absent"
    return f"{type(answer).__name__.lower()}: {answer.note}"
