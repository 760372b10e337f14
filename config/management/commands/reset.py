"""`manage.py reset`: forgets everything the demo has made."""

import shutil
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from config.embedded.errors import AlreadyRunning
from config.embedded.locks import hold_lock


class Command(BaseCommand):
    """Removes VAR_DIR, unless a demo is running from it."""

    help = "Removes the demo's database, queue, sandbox, logs and handles."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Refuses while a demo runs; does nothing where there is nothing."""
        directory = settings.VAR_DIR
        if directory.exists():
            try:
                hold_lock(directory / "demo.lock", what="The demo").release()
            except AlreadyRunning as error:
                raise CommandError(str(error)) from error
            shutil.rmtree(directory)
        self.stdout.write(f"Nothing of the demo is left in {directory}.")
