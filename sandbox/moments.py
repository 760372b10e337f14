"""Moments as text."""

from datetime import UTC, datetime


def rfc3339(moment: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC, to the microsecond."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
