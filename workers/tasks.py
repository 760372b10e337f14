"""What the queue and the clock can ask for. Each task is a shell of one call."""

from celery import shared_task

from approvals import retention
from workers import bootsteps, hints, reconciliation, sweeps


@shared_task(name="workers.execute")
def execute(hinted: object = None) -> None:
    """The doorbell: something may be due."""
    worker = bootsteps.running()
    worker.wake()  # first: due work is found without the hints
    hints.observe(hinted or [], worker=worker.name)


@shared_task(name="workers.sweep")
def sweep() -> None:
    """The clock's doorbell: look for due work, whatever messages were lost, and make the looks that are due."""
    bootsteps.running().wake()
    sweeps.run_due()


@shared_task(name="workers.reconcile")
def reconcile() -> None:
    """Compares every tool's ledger with its sink, where a pass is due."""
    reconciliation.run_due()


@shared_task(name="workers.reconcile_about")
def reconcile_about(event_id: int) -> None:
    """Compares ledger and sink back to what a provider's event tells of."""
    reconciliation.reconcile_about(event_id=event_id)


@shared_task(name="workers.prune")
def prune() -> None:
    """Empties the content that its tool's retention no longer keeps."""
    retention.prune_due()
