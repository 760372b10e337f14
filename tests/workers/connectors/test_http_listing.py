"""The effects of any HTTP service, as its tool's settings describe the listing."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from config.demo import seed
from ledger.models import Tool, ToolVersion
from ledger.tool_versions import BadToolVersion
from tests.workers.connectors.test_conformance import HOSTILE, SECONDS, answering, http
from tests.worlds import World
from workers import reconciliation
from workers.connectors.answers import Effect, Page, SinkAway
from workers.connectors.http_action import HttpAction
from workers.publishing import publish
from workers.reconciliation import NotListed

AT = "http://127.0.0.1:9"
URL = "/actions?since={since}&until={until}&after={cursor}"
MONEY = {"amount": "/amount", "currency": "/currency"}


def settings(at: str = AT, **listed: Any) -> dict[str, Any]:
    return {
        "url": f"{at}/actions",
        "look_up": {"url": f"{at}/actions?key={{key}}"},
        "list": {"url": f"{at}{URL}", **MONEY, **listed},
    }


def listed(body: bytes, **changes: Any) -> Page:
    with answering(body) as port:
        return HttpAction().list_effects(
            settings(f"http://127.0.0.1:{port}", **changes),
            since=datetime.now(UTC) - timedelta(hours=1),
            until=datetime.now(UTC),
            cursor=None,
            timeout=SECONDS,
        )


def page(*items: Any, **more: Any) -> bytes:
    return http(json.dumps({"data": items, **more}).encode())


ITEM = {"id": "act_1", "key": "k1", "created": "2026-11-30T10:00:00Z", "amount": 1200, "currency": "eur"}
EFFECT = Effect("act_1", "k1", 1200, "EUR", "listed", False, datetime(2026, 11, 30, 10, tzinfo=UTC))


def test_a_page_is_read_as_the_settings_say() -> None:
    assert listed(page(ITEM, next="act_1")) == Page([EFFECT], "act_1")
    elsewhere = {"r": 7, "when": 1_796_032_800, "state": "void", "key": None}
    read = listed(
        http(json.dumps({"rows": [elsewhere]}).encode()),
        items="/rows",
        reference="/r",
        happened_at="/when",
        status="/state",
        undone=["void"],
    )
    (effect,) = read.effects
    assert (
        effect.reference,
        effect.key,
        effect.amount_minor,
        effect.status,
        effect.reversed,
        read.cursor,
    ) == (
        "7",
        None,
        None,
        "void",
        True,
        None,
    )
    assert effect.happened_at == datetime.fromtimestamp(1_796_032_800, UTC)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": None},
        {"created": None},
        {"created": "2026-11-30T10:00:00"},
        {"created": True},
        {"created": 10**30},
        {"amount": "12.00"},
        {"amount": 12.5},
        {"currency": 978},
    ],
)
def test_an_item_that_is_not_as_the_settings_say_ends_the_pass_and_is_not_passed_by(changes: Any) -> None:
    with pytest.raises(SinkAway):
        listed(page(ITEM, {**ITEM, **changes}))


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_listing_that_is_none_says_nothing(said: bytes) -> None:
    with pytest.raises(SinkAway):
        listed(said)


@pytest.mark.parametrize("following", [True, ["x"], {"a": 1}, "x" * 500, "a\0b"])
def test_what_names_no_next_page_is_not_the_end_of_the_listing(following: Any) -> None:
    with pytest.raises(SinkAway):
        listed(page(ITEM, next=following))


@pytest.mark.parametrize(
    "given",
    [
        [],
        {"url": f"{AT}{URL}", "more": "/x"},
        {"url": "https://elsewhere.example" + URL},
        {"url": f"{AT}/actions?since={{since}}&after={{cursor}}"},
        {"url": f"{AT}{URL}&again={{cursor}}"},
        {"url": f"{AT}/{{since}}/{{until}}/{{cursor}}"},
        {"url": f"{AT}{URL}", "next": "next"},
        {"url": f"{AT}{URL}", "items": ""},
        {"url": f"{AT}{URL}", "amount": "/amount"},
        {"url": f"{AT}{URL}", "undone": "void"},
        {"url": f"{AT}{URL}", "undone": [1]},
    ],
)
def test_a_listing_that_leads_nowhere_good_is_refused_when_its_tool_is_published(
    world: World, given: Any
) -> None:
    with pytest.raises(BadToolVersion, match="sink_settings: list"):
        published(world, {**settings(), "list": given})
    assert not ToolVersion.objects.filter(tool__name="set_price").exists()


def test_a_tool_is_published_only_with_a_connector_that_can_use_its_settings(world: World) -> None:
    assert published(world, settings()).connector == "http_action"
    with pytest.raises(BadToolVersion, match="connector: "):
        published(world, settings(), connector="telepathy")
    with pytest.raises(BadToolVersion, match="sink_settings: look_up"):
        published(world, {"url": AT})


def test_a_tool_that_names_no_listing_is_not_compared(world: World) -> None:
    unlisted = {name: value for name, value in settings().items() if name != "list"}
    tool = published(world, unlisted).tool
    with pytest.raises(NotListed):
        reconciliation.reconcile(tool=tool)
    published(world, settings())
    with pytest.raises(SinkAway):  # asked, and not there
        reconciliation.reconcile(tool=tool, since=datetime.now(UTC) - timedelta(days=1))


def published(world: World, sink_settings: Any, **changes: Any) -> ToolVersion:
    tool, _ = Tool.objects.get_or_create(tenant=world.tenant, name="set_price")
    made = {"connector": "http_action", "sink": "erp", "sink_settings": sink_settings, **changes}
    return publish(tool=tool, fields={**seed.REFUND, **made})
