"""The regular looks that no message asks for. Any worker makes one that is due; twice is harmless.

What claims and take-overs look for is looked for by each worker all the time (``worker.py``).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings
from django.db import Error, close_old_connections

from approvals import cases
from ledger import sweeps
from workers import inbound

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sweep:
    """One look: what makes it, and how often, in seconds."""

    name: str
    every: float
    run: Callable[[], int]


def all_sweeps() -> list[Sweep]:
    """Every regular look there is."""
    sweep = settings.EXECUTION.sweep
    return [
        Sweep("expire", max(sweep, 1.0), cases.expire_due),
        Sweep("expire_failed", 3600.0, cases.expire_failed),
        Sweep("match_events", 60.0, inbound.match_waiting),
    ]


def made(**found: int) -> None:
    """Writes down that looks were made just now that every worker makes all the time: by name, how much each found."""
    for name, count in found.items():
        sweeps.note(name, count)


def run_due() -> None:
    """Makes those looks that nobody has made in time. One that fails leaves the others alone."""
    for each in all_sweeps():
        try:
            if sweeps.take(each.name, every=each.every):
                sweeps.note(each.name, each.run())
        except Error:
            log.warning("the sweep %s could not be made", each.name, exc_info=True)
            close_old_connections()
        except Exception:  # the next one that is due must still be made
            log.exception("the sweep %s failed", each.name)
