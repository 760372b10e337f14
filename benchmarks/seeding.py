"""Databases full of work: approved operations that wait for a word to begin, and a ledger with a long past.

One case is made by the product itself; the others are made after its rows, in sets, past every constraint and trigger.
"""

from datetime import timedelta
from typing import Any

from celery import current_app
from django.core.management import call_command

from approvals.models import Case
from benchmarks import rig
from benchmarks.nothing import Nothing
from config.demo import seed
from config.demo.seed import Organisation
from ledger import tool_versions
from ledger.models import Tool
from ledger.states import EnforcementClass
from tests.seeding import Named, cases_like
from tests.worlds import World, approved, quick_passwords
from workers.connectors import _MAKERS

BASE = "bench_base"
RESOURCES = 1000
"""So many different things are acted on, as in the limit's own schema."""
_CHUNK = 5000

_IN_FLIGHT = 64
"""Calls of one tool at once, in each worker: as many as a service that is called often takes."""
OWN: dict[str, Any] = {**seed.LEDGER_REFUND, "sentence": "Credit {amount}"}
"""A sentence without the target: cases of one tool then differ in their facts alone."""
NOTHING: dict[str, Any] = {
    **OWN,
    "title": "Nothing",
    "enforcement": EnforcementClass.PROVIDER_KEY,
    "connector": "nothing",
    "sink": "nothing",
    "key_window": timedelta(hours=24),
    "calls_in_flight": _IN_FLIGHT,
}
"""A tool whose sink does nothing at once: what is left is our own work."""

_PARAMETERS: dict[str, dict[str, Any]] = {
    "refund": {},
    "own": {"parameters": {"amount_minor": 125_000, "currency": "EUR"}},
    "nothing": {"parameters": {"amount_minor": 125_000, "currency": "EUR"}},
}


def make_base() -> World:
    """The database that every other is copied from: all tables, one organisation, its tools."""
    rig.run_sql("postgres", f'DROP DATABASE IF EXISTS "{BASE}" WITH (FORCE)', f'CREATE DATABASE "{BASE}"')
    with rig.at(BASE):
        call_command("migrate", verbosity=0)
        with quick_passwords():
            made: Organisation = seed.organisation("Benchmark demo", label="bench")
            seed.tool(made.tenant, "own", OWN)
            _MAKERS["nothing"] = Nothing
            seed.tool(made.tenant, "nothing", NOTHING)
            refund = Tool.objects.get(tenant=made.tenant, name="refund")
            tool_versions.publish(tool=refund, fields={**seed.REFUND, "calls_in_flight": _IN_FLIGHT})
    return World(made)


def make_approved(database: str, world: World, *, action: str, count: int, original: str = BASE) -> None:
    """A database with so many approved operations of one tool, due at once."""
    rig.copy_database(original, database)
    with rig.at(database):
        pattern = model(world, action)
        for first in range(1, count, _CHUNK):
            numbers = range(first, min(first + _CHUNK, count))
            names = [Named(str(number), f"order:{number % RESOURCES}") for number in numbers]
            cases_like(pattern, names, approved=True)
    rig.run_sql(database, "VACUUM (ANALYZE)")


def model(world: World, action: str, reference: str = "model") -> Case:
    """One approved case of the tool, made by the product."""
    return approved(world, reference, action=action, target=f"order:{reference}", **_PARAMETERS[action])


def copy_held_back(database: str) -> None:
    """A copy ``…_held`` whose operations are out of sight, so that workers can be ready before any is due."""
    held = f"{database}_held"
    rig.copy_database(database, held)
    rig.run_sql(
        held,
        "CREATE TABLE released (at timestamptz)",
        "CREATE TABLE held_back AS SELECT * FROM ledger_operation WHERE state = 'not_started'",
        "SET session_replication_role = replica",
        "DELETE FROM ledger_operation WHERE state = 'not_started'",
        "SET session_replication_role = origin",
        "VACUUM (ANALYZE)",
    )


def release(database: str) -> None:
    """Puts them back, as one transaction that makes all of them due."""
    rig.run_sql(
        database,
        "INSERT INTO ledger_operation SELECT * FROM held_back ORDER BY order_id",
        "INSERT INTO released VALUES (clock_timestamp())",
    )
    current_app.send_task("workers.execute", args=[[]], ignore_result=True)
