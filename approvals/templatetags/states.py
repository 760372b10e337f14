"""How the console writes states, tiers and verdicts: a word and a shape each, and sentences that count."""

from dataclasses import dataclass

from django import template

register = template.Library()


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
