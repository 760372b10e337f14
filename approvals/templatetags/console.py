"""How the console writes values: money, identifiers, people, text somebody else supplied, icons and buttons."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from lucide.templatetags.lucide import lucide

from approvals.templatetags import reveal
from ledger.money import format_amount

register = template.Library()

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
    text = text or "Content removed"  # a link must have something to be clicked on
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
