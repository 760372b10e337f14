"""What a sink, its records, its events and the wire may do."""

import httpx

from approvals.models import Case
from ledger.models import InboundEvent, Tool
from tests.crashes.stage import PATIENCE, Provider, wait_for
from tests.evidence.scene import Scene
from tests.evidence.sinks import AtSandbox, faults_of

_BEYOND_THE_CALL = 6.0
"""Seconds a call hangs: longer than its time-out and its lease."""
_LAG = 2.0
_LOOK_UPS = 2
"""So many look-ups meet a fault of the list."""


def struck_by(fault: str, scene: Scene) -> Case:
    """The fault meets the first call, the first look-ups, or the events that follow."""
    order = faults_of(scene.sink)
    if fault.endswith("_list") or fault == "list_lag":
        order("drop_after_commit")
    order(fault, **_more(fault))
    if scene.hook is not None:
        _announce(scene)
    case = scene.approved()
    scene.stage.worker("a", scene.sink).wait_until_ready()
    if fault.startswith("hang") and fault.endswith("commit"):
        wait_for("the effect", scene.sink.effects)
    if "list" in fault:
        wait_for("the fault to be over", lambda: _is_over(scene))
    scene.rest(case)
    if scene.hook is not None and fault != "event_lost":
        _hear(scene)
    return case


def _more(fault: str) -> dict[str, object]:
    if fault == "list_lag":
        return {"seconds": _LAG}
    if fault.endswith("_list"):
        return {"times": _LOOK_UPS, "seconds": 4.0}
    if fault == "event_late":
        return {"seconds": 0.5}
    return {"seconds": _BEYOND_THE_CALL} if fault.startswith("hang") else {}


def _is_over(scene: Scene) -> bool:
    """No fault waits for this subject any more."""
    sink = scene.sink
    assert isinstance(sink, Provider | AtSandbox)
    url, about = (sink.url, sink.charge) if isinstance(sink, Provider) else (sink.sandbox.url, sink.about)
    waiting = httpx.get(f"{url}/_sandbox/faults", timeout=PATIENCE).json()
    return all(each["charge"] not in (about, None) for each in waiting)


def _announce(scene: Scene) -> None:
    """Events go to the tool's hook from now on."""
    assert scene.hook is not None and isinstance(scene.sink, Provider)
    tool = Tool.objects.get(tenant=scene.stage.organisation.tenant, name=scene.sink.action)
    url = f"{scene.sink.url}/_sandbox/events"
    scene.ends.callback(lambda: httpx.post(url, json={"url": "", "secret": ""}, timeout=PATIENCE))
    httpx.post(url, json=scene.hook(f"/hooks/{tool.pk}"), timeout=PATIENCE).raise_for_status()


def _hear(scene: Scene) -> None:
    wait_for("both events", lambda: InboundEvent.objects.count() >= 2)


def request_lost(scene: Scene) -> Case:
    return _lost(scene, "request")


def answer_lost(scene: Scene) -> Case:
    return _lost(scene, "answer")


def _lost(scene: Scene, side: str) -> Case:
    scene.stage.worker("a", scene.sink, gated=True).wait_until_ready()
    held = scene.sink.gate.hold("request" if side == "request" else "answer", scene.sink.request)
    held.dropped = True
    held.released.set()
    case = scene.approved()
    assert held.reached.wait(PATIENCE), "nothing came to the gate"
    scene.rest(case)
    return case
