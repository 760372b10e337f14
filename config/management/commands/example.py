"""`manage.py example`: the worked example, by itself or against a demo that is running."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from config.demo import services
from config.demo.example import DidNotHold, Example, pid_from
from config.embedded.errors import AlreadyRunning, EmbeddedServiceError


class Command(BaseCommand):
    """Runs the worked example and exits 0 only if everything it promises held."""

    help = "Case 1842, two workers, one refund: plays the worked example and counts the effects at the sink."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Uses the demo of this folder where one is running, else starts everything for the time it takes."""
        try:
            with services.running():
                self._play()
        except AlreadyRunning:
            self._play()
        except EmbeddedServiceError as error:
            raise CommandError(str(error)) from error

    def _play(self) -> None:
        example = Example(say=self.stdout.write, pid_of=pid_from(settings.VAR_DIR))
        try:
            effects = example.run()
        except DidNotHold as failure:
            raise CommandError(str(failure)) from failure
        self.stdout.write(f"effects at the sink: {effects}")
        if effects != 1:
            raise CommandError("There must be exactly one.")
