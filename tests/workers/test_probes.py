"""Probes: what they try, what they store, and what they refuse to touch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from config.demo import seed
from ledger.guarantees import guarantee
from ledger.models import Operation, Probe, ToolVersion
from ledger.tools import current_version
from tests.sandbox.conftest import SandboxProcess
from tests.worlds import World
from workers import connectors
from workers.probes import NoProbe, probe


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    database = tmp_path_factory.mktemp("sandbox") / "sandbox.sqlite3"
    with SandboxProcess(database, "--mail-port", "0") as process:
        yield process


@pytest.fixture(scope="module")
def naive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    """A sink that has never heard of keys or references."""
    database = tmp_path_factory.mktemp("naive") / "sandbox.sqlite3"
    with SandboxProcess(database, "--ignore-keys", "--mail-port", "0") as process:
        yield process


@pytest.fixture(autouse=True)
def _tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(seed.TOKEN, "sk_sandbox_demo")
    monkeypatch.setenv(seed.PROBE_TOKEN, "sk_test_probe")


def tool(world: World, at: SandboxProcess, name: str, **changes: Any) -> ToolVersion:
    version = seed.further_tools(at.url, at.mail_port or 0)[name]
    return seed.tool(world.tenant, name, {**version, **changes})


def held(it: Probe) -> dict[str, bool | None]:
    return {each["claim"]: each["holds"] for each in it.observations}


@pytest.mark.parametrize("name", ["set_config", "pay_invoice"])
def test_a_sink_that_does_as_it_says_passes(world: World, sandbox: SandboxProcess, name: str) -> None:
    version = tool(world, sandbox, name)
    seen = probe(version)
    assert seen.passed, seen.observations
    assert len(held(seen)) == 5
    assert seen.sink == version.sink
    assert "saw it hold" in guarantee(version)
    assert not Operation.objects.exists()


@pytest.mark.parametrize("name", ["set_config", "pay_invoice"])
def test_a_sink_that_keeps_neither_keys_nor_references_is_found_out(
    world: World, naive: SandboxProcess, name: str
) -> None:
    version = tool(world, naive, name)
    seen = probe(version)
    assert not seen.passed
    assert not held(seen)["two at once have one effect"]
    assert "Do not rely on it" in guarantee(version)


def test_the_refunds_of_the_demo_are_probed_with_the_providers_test_key(
    world: World, sandbox: SandboxProcess, settings: Any
) -> None:
    settings.SANDBOX_URL = sandbox.url
    connectors.connector.cache_clear()
    version = current_version(tenant_id=world.tenant.pk, name="refund")
    seen = probe(version)
    connectors.connector("stripe_refunds").close()  # type: ignore[attr-defined]
    connectors.connector.cache_clear()
    assert seen.passed, seen.observations
    assert seen.sink == sandbox.url.removeprefix("http://")


def test_a_sink_that_promises_nothing_is_tried_once(world: World, sandbox: SandboxProcess) -> None:
    target = {
        "facts": {"target": "probe@customer.example"},
        "parameters": {"subject": "Probe", "text": "Probe"},
    }
    seen = probe(tool(world, sandbox, "send_notice", probe_target=target))
    assert (seen.passed, len(sandbox.effects(charge="probe@customer.example"))) == (True, 1)
    assert held(seen)["nothing more is claimed of this sink"] is None


def test_the_command_says_what_was_seen(
    world: World, naive: SandboxProcess, sandbox: SandboxProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    tool(world, sandbox, "set_config")
    call_command("probe", "set_config", tenant=str(world.tenant.pk))
    assert "holds     the same key twice has one effect" in capsys.readouterr().out
    tool(world, naive, "pay_invoice")
    with pytest.raises(CommandError, match="does not do what"):
        call_command("probe", "pay_invoice", tenant=str(world.tenant.pk))


def test_a_missing_secret_proves_nothing_about_the_sink(
    world: World, sandbox: SandboxProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = tool(world, sandbox, "set_config")
    monkeypatch.delenv(seed.PROBE_TOKEN)
    with pytest.raises(CommandError, match=f"Nothing was sent. Set {seed.PROBE_TOKEN}"):
        call_command("probe", "set_config", tenant=str(world.tenant.pk))
    assert not Probe.objects.exists()
    assert "Unproven" in guarantee(version)


def test_a_sink_that_is_away_proves_nothing(world: World, tmp_path: Path) -> None:
    with SandboxProcess(tmp_path / "sandbox.sqlite3", "--mail-port", "0") as gone:
        version = tool(world, gone, "pay_invoice")
    with pytest.raises(NoProbe):
        probe(version)
    assert not Probe.objects.exists()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (None, "names no probe_target"),
        ({"parameters": {"value": "on"}}, "test credentials of its own for token_env"),
        (
            {"parameters": {"value": 7}, "sink_settings": {"token_env": seed.PROBE_TOKEN}},
            "probe_target: /parameters/value",
        ),
    ],
)
def test_a_target_that_will_not_do_is_explained_and_sends_nothing(
    world: World, sandbox: SandboxProcess, target: Any, words: str
) -> None:
    with pytest.raises(NoProbe, match=words):
        probe(tool(world, sandbox, "set_config", probe_target=target))
    assert not Probe.objects.exists()


def test_live_credentials_are_refused(
    world: World, sandbox: SandboxProcess, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setenv(seed.PROBE_TOKEN, "sk_live_" + "0" * 24)
    with pytest.raises(NoProbe, match="live credentials"):
        probe(tool(world, sandbox, "set_config"))
    settings.STRIPE_API_KEY = "rk_live_" + "0" * 24
    refund = {**seed.REFUND, "probe_target": {"parameters": {}}}
    seed.tool(world.tenant, "refund_probed", refund)
    with pytest.raises(CommandError, match="Nothing was sent"):
        call_command("probe", "refund_probed", tenant=str(world.tenant.pk))
