"""Starts Celery workers from a process that has imported the libraries already: a fraction of a cold start's time.

The libraries only: settings and everything of ours are imported in the new process, under its own environment.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from celery.signals import celeryd_after_setup

LIBRARIES = [
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.thread",
    "celery.fixups.django",
    "celery.worker.consumer",
    "django.core.management",
    "django.db.backends.postgresql.base",
    "django.db.models",
    "environ",
    "iso4217",
    "jsonschema",
    "kombu.transport.filesystem",
    "psutil",
    "psycopg_pool",
    "rfc8785",
    "stripe",
]

STOPS = "TEST_STOPS_AFTER_THE_LAST_CHECK"
"""In a worker's environment: it stops itself (SIGSTOP), once, between the last look at the clock and the send."""

_nursery = multiprocessing.get_context("forkserver")
_nursery.set_forkserver_preload(LIBRARIES)


def start(arguments: list[str], environment: dict[str, str], log: Path) -> BaseProcess:
    """Runs ``celery`` with these arguments in a process of its own, its output in the log."""
    process = _nursery.Process(target=_run, args=(arguments, environment, str(log)), daemon=True)
    process.start()
    return process


def _run(arguments: list[str], environment: dict[str, str], log: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    if STOPS in environment:
        celeryd_after_setup.connect(_stop_after_the_last_check, weak=False)
    sys.argv = ["celery", *arguments]
    runpy.run_module("celery", run_name="__main__")


def _stop_after_the_last_check(**_: Any) -> None:
    from workers.leases import Lease

    look = Lease.holds

    def holds(lease: Lease) -> bool:
        answer = look(lease)
        Lease.holds = look  # type: ignore[method-assign]
        # To this thread: sent to the process, another one may take it while this one goes on and sends.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return answer

    Lease.holds = holds  # type: ignore[assignment,method-assign]
