"""Proposals: an action's facts made unambiguous, its content checked, rendered, fingerprinted and digested."""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

import rfc8785

from approvals.errors import InvalidContent
from approvals.models import Case, Policy, Proposal
from ledger import clock, tools
from ledger.identity import action_key, canonical, fingerprint, sha256
from ledger.models import ToolVersion
from ledger.schemas import Fault, pointer
from ledger.tools import Rendered

_LENGTHS = {"reference": 100, "action": 50, "target": 200}
_MOST_STEP = 2**31 - 1
_HIDDEN = ("Cc", "Cf", "Zl", "Zp", "Co", "Cs", "Cn")
# Of ordinary categories, and yet nothing to see: fillers, joiners, variation selectors (Default_Ignorable_Code_Point).
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(code)
    for first, last in ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
    for code in range(first, last + 1)
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What makes a business action the same one: never chosen by a model, normalised before they are hashed."""

    reference: str
    action: str
    target: str
    step: int

    def key(self, tenant_id: UUID) -> str:
        """The action key of these facts in a tenant."""
        return action_key(tenant=tenant_id, **asdict(self))


@dataclass(frozen=True, slots=True)
class Content:
    """What an agent says about an action: material (parameters, expects) and grounds (rationale, evidence)."""

    parameters: Mapping[str, Any]
    expects: Mapping[str, Any]
    rationale: str = ""
    evidence: Sequence[Mapping[str, Any]] = ()
    trace_id: str = ""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical material; grounds and trace are not part of it."""
        return fingerprint(parameters=self.parameters, expects=self.expects)


def facts(*, reference: str, action: str, target: str, step: int) -> Facts:
    """The facts in NFC and trimmed. Raises InvalidContent for empty, overlong or invisible ones."""
    texts = {"reference": reference, "action": action, "target": target}
    normal = {name: unicodedata.normalize("NFC", text).strip() for name, text in texts.items()}
    faults = [
        Fault(f"/{name}", fault)
        for name, text in normal.items()
        if (fault := _text_fault(text, _LENGTHS[name]))
    ]
    if isinstance(step, bool) or not isinstance(step, int) or not 1 <= step <= _MOST_STEP:
        faults.append(Fault("/step", f"Must be a whole number from 1 to {_MOST_STEP}."))
    if faults:
        raise InvalidContent(faults)
    return Facts(**normal, step=step)


def _text_fault(text: str, most: int) -> str | None:
    if not text:
        return "Must not be empty."
    if len(text) > most:
        return f"Must be at most {most} characters long."
    for character in text:
        if unicodedata.category(character) in _HIDDEN or character in _BLANK:
            return f"Must not contain the invisible character U+{ord(character):04X}."
    return None


def draft(*, tenant_id: UUID, facts: Facts, content: Content) -> tuple[Proposal, Rendered]:
    """An unsaved proposal under the tool's and the policy's newest versions. Raises InvalidContent, UnknownTool."""
    version = tools.current_version(tenant_id=tenant_id, name=facts.action)
    if faults := [
        *tools.faults(version, content.parameters),
        *_expects_faults(content.expects),
        *_canonical_faults(content),
    ]:
        raise InvalidContent(faults)
    policy = Policy.objects.filter(tool=version.tool).order_by("-version").first()
    if policy is None:
        raise InvalidContent([Fault("/action", "This tool has no policy yet, so nobody could approve it.")])
    rendered = tools.render(version, facts=asdict(facts), parameters=content.parameters)
    proposal = Proposal(
        tenant_id=tenant_id,
        tool_version=version,
        policy=policy,
        material=canonical({"expects": content.expects, "parameters": content.parameters}),
        rationale=content.rationale,
        evidence=list(content.evidence),
        sentence=rendered.sentence,
        amount_minor=rendered.amount_minor,
        currency=rendered.currency,
        fingerprint=content.fingerprint,
        digest=_digest(facts, content, version, policy, rendered.sentence),
        trace_id=content.trace_id,
        expires_at=clock.now() + policy.expires_after,
    )
    return proposal, rendered


def _expects_faults(expects: Mapping[str, Any]) -> list[Fault]:
    version, sink_version = expects.get("resource_version", 0), expects.get("sink_version", "-")
    faults = []
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        words = "Must be a whole number, 0 or more: the version the resource has."
        faults.append(Fault("/expects/resource_version", words))
    if not isinstance(sink_version, str) or not _SINK_VERSION.fullmatch(sink_version):
        words = "Must be 1 to 200 visible ASCII characters: the version the sink's own record has."
        faults.append(Fault("/expects/sink_version", words))
    unknown = "Is not something this tool can expect; it knows resource_version and sink_version."
    return faults + [Fault(pointer("expects", name), unknown) for name in expects if name not in _EXPECTED]


_EXPECTED = ("resource_version", "sink_version")
_SINK_VERSION = re.compile(r"[\x21-\x7e]{1,200}")


def _canonical_faults(content: Content) -> list[Fault]:
    try:
        text = canonical(
            {"parameters": content.parameters, "expects": content.expects, "evidence": list(content.evidence)}
        )
        canonical(json.loads(text, parse_float=_as_stored))  # what is read back has to have its digest, too
    except (rfc8785.CanonicalizationError, RecursionError) as error:
        return [Fault("/parameters", f"Cannot be written as canonical JSON (RFC 8785): {error}")]
    return []


def _as_stored(literal: str) -> float | int:
    """A number as jsonb gives it back: 1e20 as an integer, which has no exact text although the double had one."""
    number = float(literal)
    return int(number) if number.is_integer() else number


def _digest(facts: Facts, content: Content, version: ToolVersion, policy: Policy, sentence: str) -> str:
    """What the reviewer sees, as one number."""
    grounds = (content.rationale, list(content.evidence))
    return _seen(
        asdict(facts),
        content.parameters,
        content.expects,
        grounds,
        (version.number, policy.version),
        sentence,
    )


def _seen(
    facts: Mapping[str, Any],
    parameters: Mapping[str, Any],
    expects: Mapping[str, Any],
    grounds: tuple[str, list[Any]],
    versions: tuple[int, int],
    sentence: str,
) -> str:
    seen = {
        "facts": facts,
        "parameters": parameters,
        "expects": expects,
        "rationale": grounds[0],
        "evidence": grounds[1],
        "tool_version": versions[0],
        "policy_version": versions[1],
        "sentence": sentence,
    }
    return sha256(canonical(seen))


def material(proposal: Proposal) -> dict[str, Any]:
    """The stored ``{"expects": …, "parameters": …}``, as it was fingerprinted."""
    read: dict[str, Any] = json.loads(proposal.material)
    return read


def intact(row: Any) -> bool:
    """Whether stored content still has its fingerprint, and the facts and words still have their digest.

    ``row`` as ``lock_cases`` in queries.sql answers it: plain columns, since a claim asks this of fifty at once. The
    material is hashed as it is stored, between the other members: only canonical text has the approved digest.
    """
    try:
        facts = {"reference": row.reference, "action": row.action, "target": row.target, "step": row.step}
        expects, parameters = _parts(row.material)
        seen = (
            f'{{"evidence":{canonical(json.loads(row.evidence))},"expects":{expects},"facts":{canonical(facts)}'
            f',"parameters":{parameters},"policy_version":{row.policy_version:d}'
            f',"rationale":{canonical(row.rationale)},"sentence":{canonical(row.sentence)}'
            f',"tool_version":{tools.version(row.tool_version_id).number:d}}}'
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return False  # what cannot even be read is not what was approved
    return bool(sha256(row.material) == row.fingerprint and sha256(seen) == row.digest)


def _parts(material: str) -> tuple[str, str]:
    """The texts of its two members, ``expects`` and ``parameters``. Raises ValueError where it is anything else."""
    _, end = _DECODER.raw_decode(material, len(_EXPECTS))
    if not (
        material.startswith(_EXPECTS) and material.startswith(_PARAMETERS, end) and material.endswith("}")
    ):
        raise ValueError
    return material[len(_EXPECTS) : end], material[end + len(_PARAMETERS) : -1]


_DECODER = json.JSONDecoder()
_EXPECTS, _PARAMETERS = '{"expects":', ',"parameters":'


def facts_of(case: Case) -> Facts:
    """The case's own facts."""
    return Facts(case.reference, case.action, case.target, case.step)


def facts_as_json(case: Case) -> dict[str, str | int]:
    """The facts as the members that templates name."""
    return asdict(facts_of(case))


def of_revision(case: Case, number: int) -> Proposal:
    """What the case proposed at that revision, which may no longer be what it proposes."""
    return case.revisions.select_related("proposal").get(number=number).proposal


def rendered_again(case: Case) -> Rendered:
    """The order of the case's current proposal, by the tool version the reviewer saw."""
    return tools.render(
        case.proposal.tool_version,
        facts=asdict(facts_of(case)),
        parameters=material(case.proposal)["parameters"],
    )
