"""Publishing a tool's version: what is wrong is said at once; a sink does not move under an unresolved operation."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from config.demo import seed
from ledger.models import Probe, Tool, ToolVersion
from ledger.states import AttemptOutcome, EnforcementClass
from ledger.tool_versions import BadToolVersion, publish
from tests.worlds import World, claimed, recorded


def published(world: World, name: str = "refund", **changes: Any) -> ToolVersion:
    tool, _ = Tool.objects.get_or_create(tenant=world.tenant, name=name)
    return publish(tool=tool, fields={**seed.REFUND, **changes})


def test_versions_are_numbered_in_turn(world: World) -> None:
    assert [published(world).number, published(world, title="Anew").number] == [2, 3]
    assert published(world, "other").number == 1


NO_LIMIT: dict[str, Any] = {"value_limits": {}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": {"type": "array"}}, "must describe an object"),
        ({"schema": {"type": "object", "properties": {"a": {"type": "integr"}}}}, "no JSON Schema"),
        ({"sentence": "Refund {sum}"}, "sentence: {sum} is neither"),
        ({"order": {"charge": ["{pay}"]}}, "order: {pay} is neither"),
        ({"resource": "{amount}"}, "resource: {amount} is neither"),
        ({"amount_field": "sum"}, "amount_field: the schema has no sum"),
        ({"key_window": None}, "key_window: say how long"),
        ({"retry_horizon": timedelta(hours=1)}, "retry_horizon: an identity must outlive"),
        ({"retention": timedelta(days=1)}, "retention: content must outlive"),
        (NO_LIMIT, "until a probe has seen"),
        ({**NO_LIMIT, "enforcement": EnforcementClass.NONE}, "promises nothing needs a limit"),
    ],
)
def test_what_is_wrong_with_a_version_is_said_and_nothing_is_written(
    world: World, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadToolVersion) as refused:
        published(world, "other", **changes)
    assert any(words in fault for fault in refused.value.faults), refused.value.faults
    assert not ToolVersion.objects.filter(tool__name="other").exists()


def test_a_probe_that_held_lifts_the_need_of_a_limit(world: World) -> None:
    first = published(world, "other")
    Probe.objects.create(tool_version=first, sink="x", passed=True, observations=[], began_at=Now())
    assert published(world, "other", **NO_LIMIT).value_limits == {}
    with pytest.raises(BadToolVersion):
        published(world, "other", sink="elsewhere", **NO_LIMIT)


def test_the_sink_stays_while_an_operation_is_unresolved(world: World) -> None:
    grant = claimed(world)
    with pytest.raises(BadToolVersion, match="sink: settle the tool's unresolved operations first"):
        published(world, sink="elsewhere")
    with pytest.raises(BadToolVersion, match="enforcement, connector"):
        published(world, enforcement=EnforcementClass.OWNED_WRITE, connector="owned_ledger", key_window=None)
    assert published(world, sink_settings={"token_env": "SINK_NEW_TOKEN"}).number == 2
    recorded(grant, AttemptOutcome.COMMITTED)
    assert published(world, sink="elsewhere").sink == "elsewhere"
