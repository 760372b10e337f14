"""The product's Celery application with one connector more; its worker is otherwise the product's own.

A sink that does nothing has no place in the product, so its table is added to here, in a benchmark's own process.
"""

import os
from pathlib import Path
from typing import Any

from celery.signals import celeryd_after_setup

from benchmarks import sampler
from config.celery import app

__all__ = ["app"]

SAMPLES = "BENCHMARK_SAMPLES"
"""In a worker's environment: the folder to which it writes what its threads were seen doing."""


def _add_the_connector(**_: Any) -> None:
    from benchmarks.nothing import Nothing  # both need Django's apps, which are loaded after this module
    from workers.connectors import _MAKERS

    _MAKERS["nothing"] = Nothing
    if folder := os.environ.get(SAMPLES):
        sampler.start(Path(folder, f"samples-{os.getpid()}.tsv"))


celeryd_after_setup.connect(_add_the_connector, weak=False)
