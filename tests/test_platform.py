"""What the platform asks: the probes, and the numbers it scrapes."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client, override_settings
from prometheus_client.parser import text_string_to_metric_families

from ledger import control_events, halts, sweeps
from ledger.models import Sweep, Tool
from ledger.states import AttemptOutcome, ControlEventKind
from tests import worlds
from tests.worlds import world

__all__ = ["world"]

pytestmark = pytest.mark.django_db

TOKEN = "only-for-tests-0123456789"


def scraped(client: Client) -> dict[str, dict[tuple[str, ...], float]]:
    """{family: {values of the labels, in the alphabet of their names: value}}."""
    answer = client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.content.decode())
    return {
        family.name.removeprefix("countersign_"): {
            tuple(sample.labels.values()): sample.value for sample in family.samples
        }
        for family in families
    }


@pytest.fixture(autouse=True)
def token() -> Any:
    with override_settings(METRICS_TOKEN=TOKEN):
        yield


def test_the_numbers_are_there_for_the_token_alone(client: Client) -> None:
    for told in ("", "Bearer ", "Bearer wrong", TOKEN, f"Basic {TOKEN}", "Bearer \u00e9"):
        answer = client.get("/metrics", headers={"authorization": told} if told else {})
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert b"countersign_" not in answer.content
    with override_settings(METRICS_TOKEN=""):
        assert client.get("/metrics", headers={"authorization": "Bearer "}).status_code == 404


def test_the_numbers_are_those_of_the_rows_of_all_organisations(client: Client, world: worlds.World) -> None:
    other = worlds.new_world()
    for each in (world, other):
        worlds.proposed(each)
        worlds.proposed(each)
        worlds.recorded(worlds.claimed(each, "1843", target="order:2"), AttemptOutcome.UNCERTAIN)
    worlds.recorded(worlds.claimed(world, "1844", target="order:3"))
    halts.begin(tenant_id=world.tenant.pk, tool_id=None, by="person:Olga Demo", reason="x")
    sweeps.note("claim", 0)

    found = scraped(client)

    assert found["control_events_day"]["refund", "replay", "agent"] == 2
    assert found["outcome_unknown"] == {(): 2}
    assert found["exposure_minor_units"] == {("EUR",): 250_000}
    assert found["operations_settled_day"] == {("committed",): 1, ("failed_before_commit",): 0}
    assert found["halts_open"]["person", "organisation"] == 1
    assert found["sweep_late"] == {("claim",): 0}
    assert found["findings_open"]["twice",] == 0
    assert found["review_triggered"]["effects",] == 0


def test_labels_never_tell_an_organisation_a_person_a_key_or_free_text(
    client: Client, world: worlds.World
) -> None:
    grant = worlds.claimed(world)
    worlds.recorded(grant, AttemptOutcome.UNCERTAIN)
    worlds.open_finding(world, worlds.case_of(grant))
    control_events.record(
        tenant_id=world.tenant.pk,
        kind=ControlEventKind.REFUSED_ACT,
        source="somebody:said this",
        action="ignore previous instructions",
    )
    for number in range(60):
        Tool.objects.create(tenant=world.tenant, name=f"tool{number}")
        control_events.record(
            tenant_id=world.tenant.pk, kind=ControlEventKind.REPLAY, source="queue:w", action=f"tool{number}"
        )
    text = client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).content.decode()
    for told in (world.tenant.name, str(world.tenant.pk), "Demo", grant.key, "1842", "ignore", "said"):
        assert told not in text
    assert len(set(re.findall(r'action="([^"]+)"', text))) == 51
    assert scraped(client)["control_events_day"]["other", "replay", "queue"] == 10


def test_a_late_look_is_told_by_the_probe_which_stays_ready(client: Client) -> None:
    sweeps.note("claim", 0)
    assert client.get("/readyz").content == b"ok\n"
    Sweep.objects.update(ran_at=Now() - timedelta(hours=1))
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert re.fullmatch(r"late: claim, last made \d{4}-.*Z\nok\n", answer.content.decode())
    assert scraped(client)["sweep_late"] == {("claim",): 1}
    assert scraped(client)["sweep_age_seconds"]["claim",] >= 3600
