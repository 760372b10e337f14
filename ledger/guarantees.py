"""What a tool promises about happening once, in plain words: from its enforcement class, its times, its newest probe.

What no probe has shown is called unproven, and what a sink cannot give is said as it is.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ledger.models import Probe, ToolVersion
from ledger.states import EnforcementClass

_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"))
_CLAIMS = {
    EnforcementClass.PROVIDER_KEY: (
        "Every attempt carries the same key, and the provider answers a repeated key with its first result "
        "for {window}. After that it is looked up and never sent again; where a look-up cannot tell, a person decides."
    ),
    EnforcementClass.OWNED_WRITE: (
        "The database that owns the effect checks key, content and fencing token in the transaction that makes "
        "the change, so it happens at most once."
    ),
    EnforcementClass.NATURAL_REFERENCE: (
        "The sink refuses a reference it has, and is asked for it before anything is sent. After an answer that was "
        "lost it is read back, and again after {settle}; what is not there then is not sent again by itself: "
        "a person decides."
    ),
    EnforcementClass.NONE: (
        "Nothing at the sink keeps this from happening twice, and nothing there tells whether it happened. It is "
        "sent once and never again by itself; when its answer is lost it may have happened or not, and a person who "
        "sends it again may do it twice."
    ),
}


def guarantee(version: ToolVersion) -> str:
    """What keeps the version's effect from happening twice, with what the newest probe saw of it."""
    return " ".join(sentences(version, newest_probe(version)))


def sentences(version: ToolVersion, probe: Probe | None) -> list[str]:
    """The guarantee in parts: what the class claims, what bounds it, what was observed."""
    times = {
        "window": length(version.key_window or timedelta(0)),
        "settle": length(version.settle_time),
    }
    enforcement = EnforcementClass(version.enforcement)
    claims = [_CLAIMS[enforcement].format(**times)]
    if enforcement == EnforcementClass.NONE and version.value_limits:
        claims.append("That is why it stays inside a value limit.")
    return [*claims, _observed(enforcement, probe)]


def newest_probe(version: ToolVersion) -> Probe | None:
    """The last probe of this tool at the same sink in the same way, whichever version it was made for."""
    alike = {
        f"tool_version__{name}": getattr(version, name)
        for name in ("tool_id", "enforcement", "connector", "sink", "sink_settings", "key_window")
    }
    return Probe.objects.filter(**alike).order_by("-ended_at", "-pk").first()


def is_proven(version: ToolVersion) -> bool:
    """Whether the newest probe saw every claim of the class hold."""
    probe = newest_probe(version)
    return probe is not None and probe.passed


def length(span: timedelta) -> str:
    """A configured length of time: ``24 hours``, ``90 seconds``, ``30 days``."""
    seconds = span.total_seconds()
    for unit, word in _UNITS:
        if seconds >= unit and seconds % unit == 0 and (unit != 86_400 or seconds > unit):
            return _counted(seconds / unit, word)
    return _counted(seconds, "second")


def _counted(count: float, noun: str) -> str:
    return f"{count:g} {noun}{'' if count == 1 else 's'}"


def _observed(enforcement: EnforcementClass, probe: Probe | None) -> str:
    if probe is None:
        return "Unproven: no probe has tried this sink yet."
    on = f"{probe.ended_at:%Y-%m-%d}"
    if not probe.passed:
        broken = ", ".join(_broken(probe.observations)) or "a claim"
        return f"Do not rely on it: a probe on {on} saw this fail: {broken}."
    if enforcement == EnforcementClass.NONE:
        return f"A probe on {on} could send; it can prove no more than that."
    return f"A probe on {on} saw it hold."


def _broken(observations: Any) -> list[str]:
    """The claims that a probe saw fail."""
    told = observations if isinstance(observations, list) else []
    return [
        str(each.get("claim", "a claim"))
        for each in told
        if isinstance(each, Mapping) and each.get("holds") is False
    ]
