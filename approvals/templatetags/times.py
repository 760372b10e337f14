"""How the console writes moments and lengths of time: relative and absolute, the zone named."""

from datetime import datetime, timedelta

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@register.filter
def ago(moment: datetime) -> str:
    """Say how long ago a moment was, in its largest fitting unit: "41 min ago"."""
    passed = timezone.now() - moment
    return "just now" if passed < timedelta(seconds=1) else f"{span(passed)} ago"


@register.filter
def waited(moment: datetime) -> str:
    """Say how long something has been waiting since a moment: "41 min"."""
    return span(max(timezone.now() - moment, timedelta(0)))


@register.filter
def until(moment: datetime) -> str:
    """Say how long it is until a moment, or that it is over: "19 min"."""
    left = moment - timezone.now()
    return span(left) if left > timedelta(0) else "over"


@register.filter
def span(length: timedelta) -> str:
    """Write a length of time in one unit, rounded down so that a deadline is never made later."""
    if length < MINUTE:
        return f"{int(length.total_seconds())} s"
    if length < HOUR:
        return f"{length // MINUTE} min"
    if length < 2 * DAY:
        return f"{length // HOUR} h"
    return f"{length // DAY} days"


@register.filter
def took(length: timedelta) -> str:
    """Write a measured duration: "12 ms", "0.8 s", "41.2 s", "1 min 12 s"."""
    seconds = length.total_seconds()
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


@register.filter
def clock(moment: datetime, precision: str = "minutes") -> str:
    """Write local wall-clock time, with the day unless it is today: "11:00", "28 Nov 11:00"."""
    local = timezone.localtime(moment)
    time = local.isoformat(sep=" ", timespec="seconds" if precision == "seconds" else "minutes")[11:19]
    time = time if precision == "seconds" else time[:5]
    today = timezone.localdate()
    if local.date() == today:
        return time
    day = f"{local.day} {local:%b}" if local.year == today.year else f"{local.day} {local:%b %Y}"
    return f"{day} {time}"


@register.filter
def day(moment: datetime) -> str:
    """Write the time of day for today, the date for any other day: "11:00", "28 Nov"."""
    return (
        clock(moment)
        if timezone.localdate(moment) == timezone.localdate()
        else clock(moment).rpartition(" ")[0]
    )


@register.filter
def zoned(moment: datetime, precision: str = "minutes") -> str:
    """Write local wall-clock time with the name of its zone: "11:00 CET"."""
    return f"{clock(moment, precision)} {timezone.localtime(moment):%Z}"


@register.filter
def milliseconds(moment: datetime) -> str:
    """Write local time to the millisecond, for a line of time on which attempts are told apart."""
    return timezone.localtime(moment).time().isoformat(timespec="milliseconds")


@register.simple_tag
def current_zone() -> str:
    """Name the zone in which this page writes times."""
    return f"{timezone.localtime():%Z}"


@register.simple_tag
def when(moment: datetime, style: str = "ago") -> SafeString:
    """Draw a moment both ways: relative for the eye, absolute with its zone beside it."""
    relative = {"ago": ago, "until": until, "waited": waited}[style](moment)
    return format_html(
        '<time datetime="{}">{} <span class="abs">{}</span></time>',
        moment.isoformat(),
        relative,
        zoned(moment),
    )
