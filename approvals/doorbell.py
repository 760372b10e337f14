"""The nudge to the workers that something is due. It may be lost, doubled, late or forged: PostgreSQL is the truth."""

from celery import current_app
from django.db import transaction


def ring_on_commit(*, key: str, fingerprint: str) -> None:
    """Sends the hint once the transaction has committed; a broker that is away costs a sweep, not the approval."""
    # A lambda, not a partial: Django names the callback when a robust one fails, and a partial has no name.
    transaction.on_commit(lambda: _ring(key, fingerprint), robust=True)


def _ring(key: str, fingerprint: str) -> None:
    current_app.send_task(
        "workers.execute", args=[[{"key": key, "fingerprint": fingerprint}]], ignore_result=True, retry=False
    )


def wake_on_commit() -> None:
    """Asks the workers to look around once the transaction has committed; says nothing about any operation."""
    transaction.on_commit(
        lambda: current_app.send_task("workers.execute", args=[[]], ignore_result=True, retry=False),
        robust=True,
    )
