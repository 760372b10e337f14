"""A sink that does as a test tells it: a real connector, registered beside the product's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from config.demo import seed
from ledger.claims import Grant
from ledger.models import ToolVersion
from ledger.states import EnforcementClass
from tests.worlds import World
from workers import connectors, performance
from workers.connectors.answers import Absent, Answer, Connector, Found, Receipt

NAME = "told"


@dataclass
class Told:
    """Gives the answers it was told and keeps what it was asked."""

    answer: Answer | Exception = field(default_factory=lambda: Receipt("re_1", "succeeded"))
    found: Found | Exception = field(default_factory=Absent)
    sent: list[str] = field(default_factory=list)
    looked_up: list[str] = field(default_factory=list)

    def identity(self, sink_settings: Mapping[str, Any]) -> str:
        return NAME

    def send(self, grant: Grant, *, timeout: float) -> Answer:
        assert timeout > 0
        self.sent.append(grant.key)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def look_up(self, grant: Grant, *, timeout: float) -> Found:
        assert timeout > 0
        self.looked_up.append(grant.key)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The sink, for as long as the test runs."""
    sink = Told()

    def connector(name: str) -> Connector:
        return sink if name == NAME else connectors.connector(name)

    monkeypatch.setattr(performance, "connector", connector)
    return sink


def tool_of_the_told_sink(
    world: World, name: str = "told", enforcement: EnforcementClass = EnforcementClass.PROVIDER_KEY
) -> ToolVersion:
    """A write tool whose effects the sink has; its parameters are those of a refund."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connectors._MAKERS, NAME, Told)
        return seed.tool(world.tenant, name, {**seed.REFUND, "connector": NAME, "enforcement": enforcement})
