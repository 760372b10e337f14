"""A pytest plugin: one PostgreSQL for the whole run, when DATABASE_URL names none.

Loaded by `-p`, because pytest-django reads the settings before any conftest. Importing it sets what the
settings need; the server starts with the session, in the controller. The workers of pytest-xdist inherit
the address and make databases of their own in it.
"""

import os
import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from config.embedded.postgres import Server, url

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
OURS = "DATABASE_URL" not in os.environ  # in a worker of pytest-xdist the controller has set it
FOLDER = Path(tempfile.mkdtemp(prefix="countersign-tests-")).resolve() if not WORKER else None

if FOLDER:
    os.environ["VAR_DIR"] = str(FOLDER)
if FOLDER and OURS:
    os.environ["DATABASE_URL"] = url(FOLDER / "postgres", "postgres")
os.environ.setdefault("SECRET_KEY", "only-for-tests-" + "0123456789" * 5)
# The tests are of one mind about these, whatever the developer's shell has set.
for name in [name for name in os.environ if name.startswith("COUNTERSIGN_") or name in {"DEBUG", "BASE_URL"}]:
    del os.environ[name]

# Each process of the run rings a doorbell of its own: a folder, or a database of the Redis that was named.
if WORKER and os.environ.get("BROKER_URL", "").startswith("redis"):
    database = f"/{int(WORKER[2:]) + 1}"
    os.environ["BROKER_URL"] = urlsplit(os.environ["BROKER_URL"])._replace(path=database).geturl()
os.environ["BROKER_DIR"] = str(Path(os.environ["VAR_DIR"], "broker", WORKER or "main"))

_server: Server | None = None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart() -> None:
    global _server  # noqa: PLW0603  the one server of this run
    if FOLDER and OURS:
        # Nothing in a test outlives the machine, so nothing needs to reach the disk.
        _server = Server(FOLDER / "postgres", durable=False)
        _server.start()


def pytest_unconfigure() -> None:
    if _server:
        _server.stop()
    if FOLDER:
        shutil.rmtree(FOLDER, ignore_errors=True)
