"""When each of the regular looks was last made, whoever made it: a sweep that is late is an alarm."""

from django.db import connection

_TAKE = """
INSERT INTO ledger_sweep AS s (name, ran_at, found) VALUES (%(name)s, clock_timestamp(), 0)
ON CONFLICT (name) DO UPDATE SET ran_at = clock_timestamp()
WHERE s.ran_at <= clock_timestamp() - make_interval(secs => %(every)s)
"""
_NOTE = """
INSERT INTO ledger_sweep (name, ran_at, found) VALUES (%(name)s, clock_timestamp(), %(found)s)
ON CONFLICT (name) DO UPDATE SET ran_at = excluded.ran_at, found = excluded.found
"""


def take(name: str, *, every: float) -> bool:
    """Whether this look was last made so many seconds ago, or never; if so it counts as made now, by the caller."""
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, {"name": name, "every": every})
        return bool(cursor.rowcount == 1)


def note(name: str, found: int) -> None:
    """Writes down that this look was made just now, and how much it found to do."""
    with connection.cursor() as cursor:
        cursor.execute(_NOTE, {"name": name, "found": found})
