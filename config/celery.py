"""The Celery application. The queue is a doorbell: every message may be lost, doubled or late."""

import os
from typing import Any

from celery import Celery

import config.embedded.broker  # noqa: F401  (makes its address known to kombu)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("countersign")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["workers"])


def _carry_the_machine(**_: Any) -> None:
    from workers.bootsteps import Machine  # needs Django's apps, which are loaded after this module

    app.steps["worker"].add(Machine)


app.on_after_finalize.connect(_carry_the_machine, weak=False)
