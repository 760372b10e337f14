"""What the queue and the clock can ask for. Each task is a shell of one call."""

from celery import shared_task

from workers import bootsteps, hints, sweeps


@shared_task(name="workers.execute")
def execute(hinted: object = None) -> None:
    """The doorbell: something may be due."""
    worker = bootsteps.running()
    hints.observe(hinted or [], worker=worker.name)
    worker.wake()


@shared_task(name="workers.sweep")
def sweep() -> None:
    """The clock's doorbell: look for due work, whatever messages were lost, and make the looks that are due."""
    bootsteps.running().wake()
    sweeps.run_due()
