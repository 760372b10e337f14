"""The sink a tool was published for, where its address comes from the environment: another one is sent nothing.

A variable that leads elsewhere would have an effect there that the first sink has had already: look-ups there show
nothing of it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workers.connectors.answers import SinkAway
from workers.connectors.wire import BadSetting


class Expected:
    """Holds what a tool's settings name under ``setting`` against what the sink calls itself, asked once a process."""

    def __init__(self, setting: str, ask: Callable[[float], str]) -> None:
        self._setting = setting
        self._ask = ask
        self._told: str | None = None

    def named(self, sink_settings: Mapping[str, Any]) -> str | None:
        """The sink that the settings name, or None. Raises BadSetting."""
        name = sink_settings.get(self._setting)
        if name is not None and not (isinstance(name, str) and name and name.isprintable()):
            raise BadSetting(f"{self._setting} is the sink's own name for itself, as a text.")
        return name

    def why_not(self, sink_settings: Mapping[str, Any], timeout: float) -> str | None:
        """Why this sink may not be used with these settings; None where it may, or they name none."""
        try:
            expected = self.named(sink_settings)
            if expected is None:
                return None
            if self._told is None:
                self._told = self._ask(timeout)
        except (BadSetting, SinkAway) as error:
            return f"Whether this is the sink that the tool was published for is not known: {error}"
        if self._told == expected:
            return None
        return (
            f"The worker's environment leads to {self._setting} {self._told}, and this tool was published for "
            f"{expected}. Nothing is sent or looked up there: correct the environment, and start the worker again."
        )

    def why_not_each(self, many: Sequence[Mapping[str, Any]], until: float) -> Sequence[str | None]:
        """``why_not`` of each, asked once for each name, in the time that is left until then (monotonic clock)."""
        whys: dict[str, str | None] = {}
        for sink_settings in many:
            name = repr(sink_settings.get(self._setting))
            if name not in whys:
                whys[name] = self.why_not(sink_settings, max(until - time.monotonic(), 0.001))
        return [whys[repr(sink_settings.get(self._setting))] for sink_settings in many]

    def require(self, sink_settings: Mapping[str, Any], timeout: float) -> None:
        """Raises SinkAway where this sink may not be used with these settings."""
        if (why := self.why_not(sink_settings, timeout)) is not None:
            raise SinkAway(why)
