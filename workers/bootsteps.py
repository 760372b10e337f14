"""Starts and stops the worker with the Celery process that carries it."""

from typing import Any

from celery import bootsteps

from workers.worker import Worker

_running: list[Worker] = []


class NotRunning(RuntimeError):
    """No worker runs in this process. Tasks are for Celery workers: `celery -A config worker`."""


def running() -> Worker:
    """The worker of this process. Raises NotRunning elsewhere."""
    if not _running:
        raise NotRunning(NotRunning.__doc__)
    return _running[0]


class Machine(bootsteps.StartStopStep):
    """The claim → perform → record machine of one process."""

    requires = ("celery.worker.components:Pool",)

    def start(self, parent: Any) -> None:
        """Begins when the pool is up; named after the node, so that attempts say which process made them."""
        worker = Worker(parent.hostname)
        _running.append(worker)
        worker.start()

    def stop(self, parent: Any) -> None:
        """Finishes the calls on the wire on a warm shutdown."""
        while _running:
            _running.pop().stop()

    terminate = stop
