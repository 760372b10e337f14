"""A sink's listing to hold the ledger against: effects in the order of the sink's own keys, a few a page."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ledger.claims import Grant
from workers.connectors.answers import Effect, Page, SinkAway


@dataclass
class Listed:
    """Keyset paging over (when, reference), as a sink of one's own would do it. ``pages`` counts those given out."""

    effects: list[Effect] = field(default_factory=list)
    page_size: int = 2
    pages: int = 0
    away_at_page: int | None = None

    def add(self, grant: Grant | None = None, **changes: Any) -> Effect:
        """One effect more: the grant's own, or as the changes say."""
        made: dict[str, Any] = {
            "reference": f"re_{grant.key[:12]}" if grant else f"foreign-{len(self.effects)}",
            "key": grant.key if grant else None,
            "amount_minor": 125_000,
            "currency": "EUR",
            "status": "succeeded",
            "reversed": False,
            "happened_at": datetime.now(UTC) - timedelta(seconds=1),  # old enough to be listed
            **changes,
        }
        self.effects.append(Effect(**made))
        return self.effects[-1]

    def change(self, effect: Effect, **changes: Any) -> None:
        """The sink's record of the effect is another from now on."""
        position = self.effects.index(effect)
        kept = {name: getattr(effect, name) for name in Effect.__dataclass_fields__}
        self.effects[position] = Effect(**{**kept, **changes})

    def list_effects(
        self,
        sink_settings: Mapping[str, Any],
        *,
        since: datetime,
        until: datetime,
        cursor: str | None,
        timeout: float,
    ) -> Page:
        """One page."""
        if self.pages == self.away_at_page:
            raise SinkAway("503 Service Unavailable")
        self.pages += 1
        shown = self._shown(since, until, cursor)
        more = len(shown) > self.page_size
        page = shown[: self.page_size]
        return Page(page, _cursor(page[-1]) if more else None)

    def _shown(self, since: datetime, until: datetime, cursor: str | None) -> list[Effect]:
        within = [each for each in self.effects if since <= each.happened_at <= until]
        ordered = sorted(within, key=_cursor)
        return [each for each in ordered if cursor is None or _cursor(each) > cursor]


def _cursor(effect: Effect) -> str:
    return f"{effect.happened_at.astimezone(UTC).isoformat(timespec='microseconds')}/{effect.reference}"


@dataclass
class Endless:
    """A listing of ``count`` effects, made while it is read: nothing of it is ever in memory. Keys count up."""

    count: int
    page_size: int = 1000

    def list_effects(
        self,
        sink_settings: Mapping[str, Any],
        *,
        since: datetime,
        until: datetime,
        cursor: str | None,
        timeout: float,
    ) -> Page:
        """One page; the cursor is the number of the last effect."""
        first = int(cursor or 0)
        last = min(first + self.page_size, self.count)
        at = until - timedelta(minutes=1)
        effects = [
            Effect(f"e{number}", f"{number:040x}", 100, "EUR", "succeeded", False, at)
            for number in range(first, last)
        ]
        return Page(effects, str(last) if last < self.count else None)
