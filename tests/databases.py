"""The databases of a run: migrated once into a template, copied from it by every process and server that needs one."""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from config.embedded.postgres import programs

TEMPLATE = "test_countersign_template"
_FOLDER = Path(os.environ["VAR_DIR"])  # one for all processes of a run


@contextmanager
def copy_of_template() -> Iterator[None]:
    """Inside, Django's connection leads to a copy of the template for this process alone."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    name, given = f"test_countersign_{worker}", connection.settings_dict["NAME"]
    _run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)', f'CREATE DATABASE "{name}" TEMPLATE "{TEMPLATE}"')
    _lead_to(name)
    yield
    _lead_to(given)
    _run(f'DROP DATABASE "{name}" WITH (FORCE)')


def make_template() -> None:
    """Migrates the template, unless a process of this run has done so; the others wait for it."""
    made = _FOLDER / "template"
    with (_FOLDER / "template.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists():
            return
        given = connection.settings_dict["NAME"]
        _run(f'DROP DATABASE IF EXISTS "{TEMPLATE}" WITH (FORCE)', f'CREATE DATABASE "{TEMPLATE}"')
        _lead_to(TEMPLATE)
        call_command("migrate", verbosity=0)
        _lead_to(given)
        made.touch()


def copy_to(url: str) -> None:
    """Copies the migrated tables into an empty database of another server."""
    dump = [str(programs() / "pg_dump"), database_url(TEMPLATE)]
    load = [str(programs() / "psql"), "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", url]
    tables = subprocess.run(dump, check=True, capture_output=True)
    subprocess.run(load, check=True, capture_output=True, input=tables.stdout)


def database_url(name: str) -> str:
    """The address of another database on the server the tests run on."""
    given = psycopg.conninfo.conninfo_to_dict(os.environ["DATABASE_URL"])
    place = f"{given.get('user', '')}@{given.get('hostaddr') or ''}"
    return f"postgresql://{place}/{name}?host={given['host']}"


def _lead_to(name: str) -> None:
    connection.close()
    settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = name


def _run(*statements: str) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        for statement in statements:
            server.execute(statement)
