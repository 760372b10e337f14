"""What changed between two contents of a case, field by field: what moves money elsewhere or tenfold comes first."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from approvals import proposals
from approvals.models import Proposal
from approvals.templatetags import reveal
from ledger.money import format_money

Path = tuple[str, ...]

_MULTIPLE = 2
"""From this multiple on, or its inverse, a changed amount is flagged."""
_SLIP_OF_A_DIGIT = 10
"""From this multiple on an amount stands before everything else: a slipped decimal point, a unit mistaken."""
_MOST_COMPARED = 400_000
"""Pairs of words compared one by one; a longer text is marked between its common beginning and end."""

# Whose money it is or who gets it, going by a field's name.
_PAYEES = {
    "account",
    "bank",
    "beneficiary",
    "bic",
    "customer",
    "destination",
    "email",
    "iban",
    "payee",
    "phone",
    "recipient",
    "supplier",
    "to",
    "vendor",
    "wallet",
}
_TARGETS = {"address", "charge", "domain", "host", "invoice", "order", "path", "payment", "target", "url"}


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a value, and whether it is what changed."""

    text: str
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One field before and after; an absent value has no parts. ``rank`` 0 is looked at first."""

    field: str
    was_parts: Sequence[Part]
    now_parts: Sequence[Part]
    flag: str = ""
    same: bool = False
    rank: int = 9


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a content, as pages write it."""

    label: str
    text: str
    kind: str = "plain"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two contents side by side: what would happen differently, on which other grounds, in which other words."""

    rows: Sequence[Row]
    grounds: Sequence[Row]
    words: Sequence[Row]
    unchanged: Sequence[Field]

    @property
    def everything(self) -> list[Row]:
        """Changed rows first, then the same ones, for a page that shows all of both sides."""
        same = [Row(each.label, [Part(each.text)], [Part(each.text)], same=True) for each in self.unchanged]
        return [*self.rows, *self.grounds, *self.words, *same]


def compare(before: Proposal, after: Proposal) -> Comparison:
    """The difference of two contents of one case."""
    was, now = _fields(before), _fields(after)
    rows, unchanged = [], []
    for path in _in_order(after, was, now):
        old, new = was.get(path), now.get(path)
        if old == new and new is not None:
            unchanged.append(new)
        else:
            rows.append(_row(path, old, new, before, after))
    rows.sort(key=lambda row: row.rank)
    return Comparison(rows, list(_grounds(before, after)), list(_words(before, after)), unchanged)


def fields(proposal: Proposal) -> list[Field]:
    """Every value of a content, the amount first."""
    found = _fields(proposal)
    return [found[path] for path in _in_order(proposal, {}, found)]


# The fields of a content.

_AMOUNT: Path = ("amount",)


def _fields(proposal: Proposal) -> dict[Path, Field]:
    material = proposals.material(proposal)
    version = proposal.tool_version
    merged = {("parameters", version.amount_field), ("parameters", version.currency_field)}
    moves_money = proposal.amount_minor is not None and proposal.currency is not None
    found: dict[Path, Field] = {}
    if moves_money:
        amount = format_money(proposal.amount_minor or 0, proposal.currency or "")
        found[_AMOUNT] = Field("Amount", amount, "money")
    for path, value in _leaves(material, ()):
        if not (moves_money and path in merged):
            found[path] = Field(_label(path, version.schema), _text(value), type(value).__name__)
    return found


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value, start=1):
            yield from _leaves(inner, (*path, str(index)))
    elif path[1:] or value:  # an empty "expects" is no field
        yield path, value


def _label(path: Path, schema: Mapping[str, Any]) -> str:
    root, *names = path
    titled = schema.get("properties", {}).get(names[0], {}) if names else {}
    title = titled.get("title") if isinstance(titled, dict) else None
    words = [title if title and not at else name.replace("_", " ") for at, name in enumerate(names)]
    label = " / ".join(words) or root
    return f"Only if {label}" if root == "expects" else label[:1].upper() + label[1:]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _in_order(after: Proposal, was: Mapping[Path, Field], now: Mapping[Path, Field]) -> list[Path]:
    """Amount first, then as the tool's schema lists its parameters, then the rest by name."""
    properties = list(after.tool_version.schema.get("properties", {}))
    listed = {name: at for at, name in enumerate(properties)}

    def place(path: Path) -> tuple[bool, int, Path]:
        return path != _AMOUNT, listed.get(path[1] if len(path) > 1 else "", len(listed)), path

    return sorted({*was, *now}, key=place)


# One row.


def _row(path: Path, old: Field | None, new: Field | None, before: Proposal, after: Proposal) -> Row:
    flag, rank = _flag(path, old, new, before, after)
    label = (new or old or Field("", "")).label
    if old is None or new is None:
        return Row(
            label,
            [Part(old.text, changed=True)] if old else [],
            [Part(new.text, changed=True)] if new else [],
            flag,
            rank=rank,
        )
    if old.text == new.text:  # "12" became 12, or the other way round
        was_parts, now_parts = [Part(_typed(old), changed=True)], [Part(_typed(new), changed=True)]
    else:
        was_parts, now_parts = marked(old.text, new.text)
    return Row(label, was_parts, now_parts, flag, rank=rank)


def _typed(value: Field) -> str:
    return json.dumps(value.text, ensure_ascii=False) if value.kind == "str" else value.text


def _flag(
    path: Path, old: Field | None, new: Field | None, before: Proposal, after: Proposal
) -> tuple[str, int]:
    """What to call out beside a changed field, and how early to show it."""
    if path == _AMOUNT:
        return _amount_flag(before, after)
    if new is not None and reveal.count_oddities(new.text) > reveal.count_oddities(old.text if old else ""):
        return "Look-alike", 1
    names = {word for name in path[1:] for word in re.split(r"[_\W]+", name.lower())}
    if path[0] == "parameters" and names & _PAYEES:
        return "New payee", 2
    if path[0] == "parameters" and names & _TARGETS:
        return "New target", 3
    return "", 9


def _amount_flag(before: Proposal, after: Proposal) -> tuple[str, int]:
    if before.currency != after.currency:
        return "Other currency", 0
    if not before.amount_minor or not after.amount_minor:
        return "", 1
    ratio = Fraction(after.amount_minor, before.amount_minor)
    multiple = max(ratio, 1 / ratio)
    if multiple < _MULTIPLE:
        return "", 4
    sign = "×" if ratio > 1 else "÷"
    return f"{sign}{_short(multiple)}", 0 if multiple >= _SLIP_OF_A_DIGIT else 1


def _short(multiple: Fraction) -> str:
    """Rounded down, so that a flag never says more than is so."""
    tenths = int(multiple * 10)
    return str(tenths // 10) if tenths % 10 == 0 or multiple >= _SLIP_OF_A_DIGIT else f"{tenths / 10:.1f}"


# The grounds it stands on, and what the agent says about it.


def _grounds(before: Proposal, after: Proposal) -> Iterator[Row]:
    if before.policy_id != after.policy_id:
        yield Row("Policy", *marked(_policy(before), _policy(after)))
    if before.tool_version_id != after.tool_version_id:
        numbers = (f"version {each.tool_version.number}" for each in (before, after))
        yield Row("Tool", *marked(*numbers))
    yield from _evidence(before.evidence, after.evidence)


def _words(before: Proposal, after: Proposal) -> Iterator[Row]:
    if before.rationale != after.rationale:
        old, new = before.rationale, after.rationale
        yield Row("Agent says", *(marked(old, new) if old and new else (_whole(old), _whole(new))))


def _policy(proposal: Proposal) -> str:
    policy = proposal.policy
    return f"T{policy.tier}, {policy.approvals_required} to approve, version {policy.version}"


def _evidence(before: Sequence[Any], after: Sequence[Any]) -> Iterator[Row]:
    gone = [_piece(each) for each in before if each not in after]
    come = [_piece(each) for each in after if each not in before]
    for at in range(max(len(gone), len(come))):
        yield Row("Evidence", _whole(gone[at : at + 1]), _whole(come[at : at + 1]))


def _piece(item: Any) -> str:
    if not isinstance(item, dict):
        return _text(item)
    return " · ".join(_text(item[name]) for name in ("statement", "source", "fetched_at") if name in item)


def _whole(value: str | Sequence[str]) -> list[Part]:
    text = value if isinstance(value, str) else "".join(value)
    return [Part(text, changed=True)] if text else []


# Marking words.

_WORDS = re.compile(r"\w+|\W")


@dataclass(slots=True)
class _Parts:
    parts: list[Part] = field(default_factory=list)

    def add(self, words: Sequence[str], *, changed: bool) -> None:
        if words:
            self.parts.append(Part("".join(words), changed))


def marked(before: str, after: str) -> tuple[list[Part], list[Part]]:
    """Both texts whole, with the words marked that differ."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    was, now = _Parts(), _Parts()
    for same, a, b in _blocks(old, new):
        was.add(old[a], changed=not same)
        now.add(new[b], changed=not same)
    return was.parts, now.parts


def _blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[bool, slice, slice]]:
    if len(old) * len(new) <= _MOST_COMPARED:
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for tag, a, a_end, b, b_end in matcher.get_opcodes():
            yield tag == "equal", slice(a, a_end), slice(b, b_end)
        return
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    yield True, slice(0, head), slice(0, head)
    yield False, slice(head, len(old) - tail), slice(head, len(new) - tail)
    yield True, slice(len(old) - tail, None), slice(len(new) - tail, None)


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """How many words both begin with."""
    pairs = zip(old, new, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))
