"""Whether the regular looks are made: each has a longest time between two runs, and one that is late is an alarm."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from ledger import clock
from ledger.models import Sweep

_FREQUENT = ("claim", "take_over", "expire")
"""Made every few seconds, by every worker or by the first that comes."""
_SELDOM: Mapping[str, timedelta] = {"reconcile": timedelta(hours=1), "prune": timedelta(hours=49)}
_LATE_AFTER = 60.0
"""Seconds; many times what a frequent look takes, and less than a person takes to notice."""


@dataclass(frozen=True, slots=True)
class Look:
    """The last run of a regular look. ``late``: nobody has made it for longer than it may take."""

    name: str
    ran_at: datetime
    found: int
    late: bool


def looks() -> list[Look]:
    """Every regular look that was ever made, by name. They serve all tenants."""
    rows = list(Sweep.objects.order_by("name"))
    now = clock.now() if rows else None
    return [Look(each.name, each.ran_at, each.found, late=_is_late(each, now)) for each in rows if now]


def late_looks() -> list[Look]:
    """Those that nobody has made in time."""
    return [each for each in looks() if each.late]


def _is_late(sweep: Sweep, now: datetime) -> bool:
    frequent = timedelta(seconds=max(_LATE_AFTER, 10 * settings.EXECUTION.sweep))
    most = frequent if sweep.name in _FREQUENT else _SELDOM.get(sweep.name, timedelta(days=1))
    return now - sweep.ran_at > most
