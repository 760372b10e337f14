"""The programs of a demo on one machine: database, sandbox provider, web, two workers, beat; all under one folder."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from config.demo import seed
from config.embedded import ports, postgres
from config.embedded.processes import Program
from config.embedded.supervisor import Supervisor
from workers.connectors import owned_ledger

WORKERS = ("worker-1", "worker-2")

# Short times, so that the worked example's lease runs out while one watches; production keeps the defaults.
TIMES = {
    "COUNTERSIGN_LEASE": "3",
    "COUNTERSIGN_CALL_TIMEOUT": "12",
    "COUNTERSIGN_SWEEP": "0.5",
    "COUNTERSIGN_BACKOFF": "1",
    "COUNTERSIGN_DATABASE_TIMEOUT": "2",
}

# What the sandbox's services take for a key; secrets of real sinks come from the environment by such names, too.
TOKENS = {seed.TOKEN: "sk_sandbox_demo", seed.PROBE_TOKEN: "sk_test_probe"}


@contextmanager
def running() -> Iterator[Supervisor]:
    """Starts everything, each only when what it needs is ready; ends everything on the way out, however that is.

    Raises an EmbeddedServiceError that says what to do: a busy port, a second demo, a program that does not start.
    """
    directory = settings.VAR_DIR
    settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # WhiteNoise looks there, beside the sources
    with Supervisor(directory) as supervisor:
        ports.require_free_port(settings.WEB_PORT, variable="WEB_PORT")
        ports.require_free_port(settings.SANDBOX_PORT, variable="SANDBOX_PORT")
        ports.require_free_port(settings.SANDBOX_PORT + 1, variable="SANDBOX_PORT")  # its mail
        server = postgres.Server(directory / "postgres")
        supervisor.start(server.program(), sandbox(directory))
        server.create_database("countersign")
        server.create_database("refund_ledger")
        with psycopg.connect(settings.REFUND_LEDGER_URL) as ledger:
            ledger.execute(owned_ledger.SCHEMA.read_bytes())
        if _unmigrated():
            call_command("migrate", verbosity=0)
        supervisor.start(web(), *(worker(name, directory) for name in WORKERS), beat(directory))
        yield supervisor


def _unmigrated() -> bool:
    """Whether the tables are not those of this code yet; to ask costs a fraction of migrating to no effect."""
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def sandbox(directory: Path) -> Program:
    """The sandbox provider with its own database."""
    return Program(
        name="sandbox",
        command=_python(
            "-m",
            "sandbox",
            "--port",
            str(settings.SANDBOX_PORT),
            "--mail-port",
            str(settings.SANDBOX_PORT + 1),
            "--database",
            str(directory / "sandbox.sqlite3"),
        ),
        directory=settings.BASE_DIR,
        ready=lambda: ports.accepts_connections(settings.SANDBOX_PORT),
    )


def web() -> Program:
    """The console and the API."""
    bind = f"127.0.0.1:{settings.WEB_PORT}"
    return Program(
        name="web",
        command=_python(
            "-m",
            "gunicorn",
            "config.wsgi",
            "--bind",
            bind,
            "--worker-class",
            "gthread",
            "--workers",
            "2",
            "--threads",
            "8",
            "--no-control-socket",
            "--preload",
        ),
        directory=settings.BASE_DIR,
        environment=environment(),
        ready=lambda: ports.accepts_connections(settings.WEB_PORT),
    )


def worker(name: str, directory: Path) -> Program:
    """A Celery worker with threads: one process, so that a stop stops heartbeat and work alike."""
    options = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO")
    log = directory / "log" / f"{name}.log"
    return Program(
        name=name,
        command=_python(
            "-m", "celery", "-A", "config", "worker", "-P", "threads", "-c", "4", "-n", f"{name}@%h", *options
        ),
        directory=settings.BASE_DIR,
        environment=environment(),
        ready=lambda: log.exists() and "is looking for due operations" in log.read_text(errors="replace"),
    )


def beat(directory: Path) -> Program:
    """The clock of the sweeps."""
    schedule = str(directory / "beat-schedule")
    return Program(
        name="beat",
        command=_python(
            "-m",
            "celery",
            "-A",
            "config",
            "beat",
            "--schedule",
            schedule,
            "--pidfile",
            "",
            "--loglevel",
            "WARNING",
        ),
        directory=settings.BASE_DIR,
        environment=environment(),
    )


def environment() -> dict[str, str]:
    """What the demo's programs are told beyond our own environment. Never a key of Stripe's: a demo moves no money."""
    return {
        **TIMES,
        **TOKENS,
        "STRIPE_API_KEY": "",
        "PYTHONUNBUFFERED": "1",
        "VAR_DIR": str(settings.VAR_DIR),
    }


def for_commands() -> dict[str, str]:
    """What a command in another terminal needs to work on this demo: the same, and where everything answers."""
    ports = {"WEB_PORT": str(settings.WEB_PORT), "SANDBOX_PORT": str(settings.SANDBOX_PORT)}
    return {**environment(), **ports}


def _python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]
