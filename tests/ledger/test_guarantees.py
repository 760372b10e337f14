"""What a tool promises about happening once, in words: the class's claim, its bounds, and what a probe saw."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from config.demo import seed
from ledger.guarantees import guarantee, is_proven
from ledger.models import Probe, ToolVersion
from ledger.states import EnforcementClass
from tests.worlds import World


def version(world: World, enforcement: EnforcementClass, **changes: Any) -> ToolVersion:
    fields = {**seed.REFUND, "enforcement": enforcement, **changes}
    return seed.tool(world.tenant, "other", fields)


def probed(version: ToolVersion, *, passed: bool, observations: Any = ()) -> Probe:
    return Probe.objects.create(
        tool_version=version, sink="test", passed=passed, observations=list(observations), began_at=Now()
    )


SAID: list[tuple[EnforcementClass, str]] = [
    (EnforcementClass.PROVIDER_KEY, "first result for 24 hours"),
    (EnforcementClass.OWNED_WRITE, "so it happens at most once"),
    (EnforcementClass.NATURAL_REFERENCE, "read back, and again after 90 seconds"),
    (EnforcementClass.NONE, "it may have happened or not"),
]


@pytest.mark.parametrize(("enforcement", "words"), SAID)
def test_each_class_says_what_it_claims_and_that_nobody_has_seen_it_yet(
    world: World, enforcement: EnforcementClass, words: str
) -> None:
    said = guarantee(version(world, enforcement, settle_time=timedelta(seconds=90)))
    assert words in said
    assert said.endswith("Unproven: no probe has tried this sink yet.")


def test_a_sink_that_promises_nothing_is_not_dressed_up(world: World) -> None:
    said = guarantee(version(world, EnforcementClass.NONE))
    assert "may do it twice" in said
    assert "stays inside a value limit" in said


def test_what_a_probe_saw_is_said(world: World) -> None:
    it = version(world, EnforcementClass.PROVIDER_KEY)
    probed(it, passed=True)
    assert "saw it hold" in guarantee(it)
    assert is_proven(it)


def test_the_newest_probe_counts_and_names_what_failed(world: World) -> None:
    it = version(world, EnforcementClass.PROVIDER_KEY)
    probed(it, passed=True)
    claims = [{"claim": "same key twice", "holds": False}, {"claim": "two at once", "holds": True}, "odd"]
    probed(it, passed=False, observations=claims)
    said = guarantee(it)
    assert "saw this fail: same key twice." in said
    assert not is_proven(it)


def test_a_probe_of_an_earlier_version_counts_while_the_sink_is_reached_in_the_same_way(world: World) -> None:
    first = version(world, EnforcementClass.PROVIDER_KEY)
    probed(first, passed=True)
    same = {**seed.REFUND, "title": "Another title"}
    assert is_proven(ToolVersion.objects.create(tool=first.tool, number=2, **same))
    elsewhere = {**seed.REFUND, "sink_settings": {"url": "https://elsewhere.example"}}
    assert not is_proven(ToolVersion.objects.create(tool=first.tool, number=3, **elsewhere))
