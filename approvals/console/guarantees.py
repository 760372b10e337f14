"""What a tool promises about happening once, as pages say it: a few words, and the sentences under them."""

from dataclasses import dataclass

from ledger.guarantees import length, newest_probe, sentences
from ledger.models import Probe, ToolVersion
from ledger.states import EnforcementClass


@dataclass(frozen=True, slots=True)
class Promise:
    """The heading, what it rests on, and the probe that has tried it last, if any has."""

    short: str
    words: str
    probe: Probe | None


def promise(version: ToolVersion) -> Promise:
    """What keeps the version's effect from happening twice. A claim that a probe saw fail is no heading."""
    probe = newest_probe(version)
    short = _short(version) if probe is None or probe.passed else "Claimed, and seen to fail"
    return Promise(short, " ".join(sentences(version, probe)), probe)


def _short(version: ToolVersion) -> str:
    match EnforcementClass(version.enforcement):
        case EnforcementClass.PROVIDER_KEY:
            return f"Once, for {length(version.key_window)}" if version.key_window else "Once"
        case EnforcementClass.OWNED_WRITE:
            return "Once, also after a crash"
        case EnforcementClass.NATURAL_REFERENCE:
            return "Once per reference"
    return "Not promised"
