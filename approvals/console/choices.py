"""What an operator may say or do about one unsettled operation, and why, where something is off, it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from accounts.actors import Actor
from approvals.console.answers import Circumstances, is_it_safe
from approvals.console.lookups import maybe_sent
from approvals.console.sources import worker_named
from approvals.console.unsettled import SAID, Item
from approvals.templatetags.times import clock, zoned
from ledger import attestations
from ledger.attestations import NotYet
from ledger.models import Attestation
from ledger.states import AttestedOutcome, EnforcementClass

SEND_AGAIN = "send_again"
LOOK_LATER: Mapping[str, timedelta] = {
    "look_in_15_min": timedelta(minutes=15),
    "look_in_4_h": timedelta(hours=4),
}
"""How long a person leaves it unknown, by the choice's name."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One radio button: what it says, the words under it, and, where it is ``off``, why and until when."""

    value: str
    label: str
    words: str
    off: str = ""
    names_reference: bool = False


def choices(item: Item, here: Circumstances) -> list[Choice]:
    """Every choice there is, in the order in which it is shown; none is left out, so that each can say why."""
    return [_happened(item), _did_not_happen(item), _send_again(here), *_look_later(item)]


def _happened(item: Item) -> Choice:
    named = item.known.operation.order.tool_version.enforcement != EnforcementClass.NONE
    sink = item.known.operation.order.tool_version.sink
    reference = (
        f"The reference is required, as {sink} shows it."
        if named
        else f"{sink} gives no reference: leave it empty, and one is made that says whose word it is."
    )
    return Choice(
        AttestedOutcome.HAPPENED,
        "It happened",
        f"{reference} It stays marked as your word.",
        off=_off(item, AttestedOutcome.HAPPENED),
        names_reference=True,
    )


def _did_not_happen(item: Item) -> Choice:
    return Choice(
        AttestedOutcome.DID_NOT_HAPPEN,
        "It did not happen",
        "Nobody can act on it any more. The agent may propose it again, under a new key.",
        off=_off(item, AttestedOutcome.DID_NOT_HAPPEN),
    )


def _off(item: Item, testimony: AttestedOutcome) -> str:
    no = attestations.why_not(item.known.operation, testimony)
    return "" if no is None else in_words(no)


def in_words(no: NotYet) -> str:
    """Why not, and until when: ``Off until 2 Dec 11:44 UTC. The provider still …``."""
    until = f" until {zoned(no.until, 'seconds')}" if no.until else ""
    return f"Off{until}. {no.why}"


def _send_again(here: Circumstances) -> Choice:
    safe = is_it_safe(here)
    allowed = safe.short.startswith("Yes")
    return Choice(
        SEND_AGAIN,
        "Send again with the same key",
        f"{safe.why} Chosen, that is done at once, by the next free worker.",
        off="" if allowed else f"Off. {safe.why}",
    )


def _look_later(item: Item) -> list[Choice]:
    off = _off(item, AttestedOutcome.STILL_UNKNOWN)
    label = {"look_in_15_min": "15 min", "look_in_4_h": "4 h"}
    words = "The clock runs on, and so do the look-ups."
    return [Choice(name, f"Still unknown, look again in {label[name]}", words, off) for name in LOOK_LATER]


# Ending it, and undoing it.


def why_not_stop(item: Item) -> str:
    """Why it cannot be stopped; empty where it can."""
    if any(maybe_sent(each) for each in item.known.attempts):
        return "Stopping is off: it may have been sent."
    no = attestations.why_not(item.known.operation, AttestedOutcome.STILL_UNKNOWN)
    if no is not None:
        return f"Stopping is off. {no.why}"
    return "" if item.known.state == "started" else "Stopping is off: it is not being tried."


# The second person.


@dataclass(frozen=True, slots=True)
class Pair:
    """What a tool that asks for two people means for the one who reads the page; ``button`` is what they press."""

    button: str
    words: str = ""


def pair(item: Item, actor: Actor) -> Pair:
    """Whether another person has to say the same, has said it, or waits for one."""
    if not item.known.operation.order.tool_version.second_person:
        return Pair("Record")
    first = item.first_word
    if first is None:
        return Pair("Record and ask for a second person", "This tool asks for two people.")
    if first.member_id == actor.id:
        words = (
            f"You said at {clock(first.at)} that {_quoted(first)}. Somebody else has to say the same: "
            "two people keep one mistake from settling it."
        )
        return Pair("Record and ask for a second person", words)
    words = (
        f"{first.name} said at {clock(first.at)} that {_quoted(first)}. Look for yourself: "
        "if you say the same, it is settled."
    )
    return Pair("Record as the second person", words)


def _quoted(word: Attestation) -> str:
    return SAID[word.testimony]


# What is suggested.


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What to do next, and why."""

    short: str
    why: str


def suggestion(item: Item) -> Suggestion:
    """The next step an operator would take on what is known; never an outcome that nothing speaks for."""
    known, version = item.known, item.known.operation.order.tool_version
    late = [each for each in known.evidence if each.reference]
    if late:
        return Suggestion(
            "it happened",
            f"{worker_named(late[-1].worker)}’s late report names {late[-1].reference}. "
            f"Find it at {version.sink} before you record it.",
        )
    if known.operation.reason == "set_aside":
        return Suggestion(
            "look before anything is sent again",
            f"Workers fell silent over it, one after the other. Look at {version.sink} for what came of them.",
        )
    if not any(maybe_sent(each) for each in known.attempts):
        return Suggestion("wait", "Nothing of it has been sent, so it is tried again by itself.")
    if version.enforcement == EnforcementClass.NONE:
        return Suggestion(
            f"ask whoever keeps {version.sink}",
            "It cannot be asked by a program, and nothing is sent twice: only a person can find out.",
        )
    if item.overdue and not any(each.lookups for each in known.attempts):
        return Suggestion(
            "have the sink checked now",
            "It is overdue, and nobody has looked it up since it was lost sight of.",
        )
    if item.why:
        return Suggestion(
            f"look at {version.sink} yourself",
            "What the look-ups have shown does not settle it. Search there by the key or by the amount and the time.",
        )
    return Suggestion("wait", "It is looked up again by itself, and is still within its tool’s objective.")
