"""`manage.py prune`: removes what is past its tool's retention, now."""

from typing import Any

from django.core.management.base import BaseCommand

from approvals import retention


class Command(BaseCommand):
    """The nightly task, by hand."""

    help = (
        "Empties cases and operations that are past their tool's retention. Keys, states and references stay."
    )

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Says how many."""
        self.stdout.write(f"{retention.prune_due()} emptied. What they were and what came of them stays.")
