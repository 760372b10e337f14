"""Lengths of time as the metrics write them."""

from datetime import timedelta

from approvals.templatetags.times import took


def age(span: timedelta) -> str:
    """A measured length of time in its two largest units: ``12.0 s``, ``59 min``, ``1 h 12 min``, ``3 days 4 h``."""
    minutes = int(span.total_seconds()) // 60
    if minutes < 1:
        return took(span)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} days {hours % 24} h" if hours % 24 else f"{hours // 24} days"
