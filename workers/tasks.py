"""What the queue and the clock can ask for. Each task is a shell of one call."""

from celery import shared_task

from approvals import cases
from workers import bootsteps, hints


@shared_task(name="workers.execute")
def execute(hinted: object = None) -> None:
    """The doorbell: something may be due."""
    worker = bootsteps.running()
    hints.observe(hinted or [], worker=worker.name)
    worker.wake()


@shared_task(name="workers.sweep")
def sweep() -> None:
    """The clock's doorbell: look for due work, whatever messages were lost."""
    bootsteps.running().wake()


@shared_task(name="workers.expire")
def expire() -> None:
    """Writes down what the clock has ended."""
    cases.expire_due()
