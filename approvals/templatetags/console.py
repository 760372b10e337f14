"""How the console writes values: money, time, identifiers, states, and text somebody else supplied."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from lucide.templatetags.lucide import lucide

from approvals.templatetags import reveal
from ledger.money import format_amount

register = template.Library()

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


# Money


@register.filter
def money(amount_minor: int, currency: str) -> str:
    """Write minor units with the currency's own digits: 125000, "EUR" → "1,250.00"."""
    return format_amount(amount_minor, currency)


@register.simple_tag
def sentence(
    text: str, amount_minor: int | None = None, currency: str | None = None, inside: bool = False
) -> SafeString:
    """Write a tool's sentence, amount in bold, deceptions visible; `inside` another sentence if so."""
    text = _inside(text) if inside else text
    if amount_minor is None or not currency:
        return reveal.reveal(text)
    amount = f"{money(amount_minor, currency)} {currency}"
    before, found, after = text.partition(amount)
    if not found:
        return reveal.reveal(text)
    return format_html("{}<b>{}</b>{}", _reveal_part(before), amount, _reveal_part(after))


def _inside(text: str) -> str:
    is_word = text[1:2] != text[1:2].upper() or not text[1:2].isalpha()
    return (text[:1].lower() + text[1:] if is_word else text).removesuffix(".")


def _reveal_part(text: str) -> SafeString:
    return reveal.reveal(text) if text else mark_safe("")


# Text somebody else supplied


@register.filter
def revealed(text: object) -> SafeString:
    """Write agent-supplied text as safe HTML with hidden and look-alike characters as chips."""
    return reveal.reveal("" if text is None else str(text))


@register.filter
def plain(text: object) -> str:
    """Write agent-supplied text where no markup can stand: in a title, a label, an attribute."""
    return reveal.plain("" if text is None else str(text))


@register.filter
def as_json(value: object) -> SafeString:
    """Write parameters as indented JSON, as exactly revealed as any other text of the agent's."""
    lines = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True, default=str).split("\n")
    return mark_safe("\n".join(reveal.reveal(line) for line in lines))  # noqa: S308  each line is revealed


@register.simple_tag
def count_oddities(*values: object) -> int:
    """Count the hidden and look-alike characters in the given texts, dicts and lists together."""
    return sum(reveal.count_oddities(text) for value in values for text in reveal.leaves(value))


# Identifiers and people


@register.filter
def shorten(identifier: object, ends: str = "8,5") -> str:
    """Shorten an identifier in the middle, keeping so many characters at its head and its tail."""
    text = str(identifier)
    head, tail = (int(number) for number in ends.split(","))
    return text if len(text) <= head + tail + 1 else f"{text[:head]}…{text[-tail:]}"


@register.inclusion_tag("approvals/partials/_identifier.html")
def identifier(value: object, label: str, prefix: str = "") -> dict[str, object]:
    """Draw a shortened identifier that can be copied whole."""
    return {"value": str(value), "label": label, "prefix": prefix}


@register.filter
def initials(name: str) -> str:
    """Give the two letters on a person's or an agent's face: "Ana Ruiz" → AR, "refund-agent" → RA."""
    words = [word for word in name.replace("-", " ").replace("_", " ").split() if word[0].isalnum()]
    return "".join(word[0] for word in words[:2]).upper() or "?"


@register.inclusion_tag("approvals/partials/_by.html")
def by(name: str, kind: str = "person") -> dict[str, str]:
    """Draw who it was: an agent is square, a person round."""
    return {"name": name, "kind": kind}


# Time


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


# States


@dataclass(frozen=True)
class Look:
    """How a state is drawn: its word, and either an operation's shape or an icon."""

    word: str
    says: str
    state: str = ""
    icon: str = ""


OPERATION_LOOKS = {
    "not_started": Look("Not started", "Nothing has been sent.", state="not_started"),
    "started": Look("Started", "Being done now.", state="started"),
    "committed": Look("Committed", "It happened, once.", state="committed"),
    "failed_before_commit": Look("Failed before commit", "It did not happen.", state="failed_before_commit"),
    "outcome_unknown": Look("Unknown", "We do not know if it happened.", state="outcome_unknown"),
}

CASE_LOOKS = {
    "pending": Look("Pending review", "Waits for a reviewer."),
    "returned": Look("Changes requested", "Waits for the agent.", icon="undo-2"),
    "held": Look("Held", "Waits until a reviewer releases it.", icon="pause"),
    "approved": Look("Approved", "Nothing has been sent yet.", icon="check"),
    "rejected": Look("Rejected", "Nothing will be sent.", icon="x"),
    "withdrawn": Look("Withdrawn", "Nothing will be sent.", icon="corner-down-right"),
    "expired": Look("Expired", "Nothing will be sent.", icon="clock"),
    "executing": Look("Executing", "Being done now.", state="started"),
    "executed": Look("Executed", "It happened, once.", state="committed"),
    "failed": Look("Failed", "It did not happen.", state="failed_before_commit"),
    "unknown": Look("Unknown", "We do not know if it happened.", state="outcome_unknown"),
}


@register.inclusion_tag("approvals/partials/_state.html")
def state_badge(state: str, lease_over: bool = False) -> dict[str, object]:
    """Draw a case's or an operation's state as shape and word; one whose worker fell silent is unknown."""
    return {"look": look(state, lease_over), "review": str(state)}


@register.simple_tag
def state_says(state: str, lease_over: bool = False) -> str:
    """Give the sentence that belongs to a state."""
    return look(state, lease_over).says


@register.simple_tag
def state_word(state: str, lease_over: bool = False) -> str:
    """Give the word that belongs to a state, for the middle of a sentence."""
    return look(state, lease_over).word.lower()


def look(state: str, lease_over: bool = False) -> Look:
    """Find how a state is drawn."""
    if state == "started" and lease_over:
        return OPERATION_LOOKS["outcome_unknown"]
    return OPERATION_LOOKS.get(str(state)) or CASE_LOOKS[str(state)]


@register.simple_tag
def drawn_state(state: str, lease_over: bool = False) -> str:
    """Name the operation state whose colours and shape a page takes on."""
    return look(state, lease_over).state


@register.inclusion_tag("approvals/partials/_tier.html")
def tier(level: int) -> dict[str, object]:
    """Draw a risk tier as rising bars: no colour, only ink."""
    bars = [(1 + 4 * step, 9 - 2.6 * step, 3 + 2.6 * step, step <= level) for step in range(4)]
    return {"level": level, "bars": bars}


EFFECTS = {
    "not_started": "nothing sent",
    "committed": "1 effect",
    "failed_before_commit": "no effect",
    "outcome_unknown": "effect not known",
}


@register.simple_tag
def tally(attempts: int, sends: int, state: str = "", maybe: int = 0) -> str:
    """Count in words what was tried and, given the state, what came of it: "2 attempts, 1 send, 1 effect".

    `maybe` are attempts that never said whether they sent.
    """
    tried = f"at most {_count(sends + maybe, 'send')}" if maybe else _count(sends, "send")
    parts = [_count(attempts, "attempt"), tried if attempts else "", effect(state)]
    return ", ".join(part for part in parts if part)


@register.filter
def effect(state: str) -> str:
    """Say what came of an operation as a count of effects."""
    return EFFECTS.get(str(state), "")


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}" if number in (0, 1) else f"{number} {noun}s"


SAID = {
    "approve": "Approved",
    "reject": "Rejected",
    "request_changes": "Changes requested",
    "hold": "Held",
    "release": "Released",
    "revoke": "Revoked",
    "reopen": "Reopened",
    "withdraw": "Withdrawn",
}


@register.filter
def said(verdict: str) -> str:
    """Write a recorded verdict as what was done: request_changes → "Changes requested"."""
    return SAID.get(str(verdict), words(verdict).capitalize())


@register.filter
def words(code: object) -> str:
    """Write a code as words: failed_before_commit → "failed before commit"."""
    return str(code).replace("_", " ")


# Drawing


@register.simple_tag
def icon(name: str) -> SafeString:
    """Draw an icon; it always stands beside a word, so it is hidden from screen readers."""
    return _icon(name)


@lru_cache(maxsize=64)
def _icon(name: str) -> SafeString:
    attributes = {"class": "icon", "aria-hidden": "true", "stroke-width": "1.9"}
    return mark_safe(lucide(name, size=16, **attributes))  # noqa: S308  a file of the icon package


@register.simple_tag
def shape(name: str, css: str = "shape", state: str = "") -> SafeString:
    """Draw one of our own shapes: the mark, a stroke, an operation state."""
    of_state = format_html(' data-state="{}"', state) if state else ""
    return format_html('<svg class="{}"{} aria-hidden="true"><use href="#{}"/></svg>', css, of_state, name)


@dataclass(frozen=True)
class Button:
    """How an act is offered in the decision bar."""

    label: str
    style: str = ""
    key: str = ""
    always_shown: bool = True


BUTTONS = {
    "approve": Button("Approve…", style="approve", key="a"),
    "reject": Button("Reject…", style="reject", key="r"),
    "request_changes": Button("Request changes…", key="c", always_shown=False),
    "hold": Button("Hold…", style="quiet", always_shown=False),
    "withdraw": Button("Withdraw…", style="quiet", always_shown=False),
    "release": Button("Release…", style="primary"),
    "revoke": Button("Revoke approval…"),
    "reopen": Button("Reopen…"),
}


@register.filter
def button(verdict: str) -> Button:
    """Look up how an act is offered."""
    return BUTTONS[str(verdict)]


@register.filter
def button_word(verdict: str) -> str:
    """Give the word that stood on the button: request_changes → "Request changes"."""
    return button(verdict).label.removesuffix("…")


@register.filter
def behind_more(acts: Iterable[object]) -> list[object]:
    """Pick the acts that a phone keeps behind one button."""
    return [act for act in acts if not button(_verdict(act)).always_shown]


@register.filter
def always_shown(acts: Iterable[object]) -> list[object]:
    """Pick the acts that even a phone shows at once."""
    return [act for act in acts if button(_verdict(act)).always_shown]


@register.filter
def of_panel(draft: object, verdict: str) -> object:
    """Keep a draft that came back for its own panel, and from the others."""
    return draft if str(getattr(draft, "verdict", "")) == str(verdict) else ""


@register.filter
def panel_template(verdict: str) -> str:
    """Name the template of an act's panel."""
    return f"approvals/panels/{verdict}.html"


def _verdict(act: object) -> str:
    return str(act["verdict"] if isinstance(act, dict) else act.verdict)  # type: ignore[attr-defined]
