"""An organisation to act in, whose sinks are judged almost at once."""

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import override_settings

from config.execution import ExecutionSettings
from tests.worlds import world

__all__ = ["world"]


@pytest.fixture(autouse=True)
def short_calls() -> Iterator[None]:
    """No effect is too young to be judged for longer than a moment."""
    quick = ExecutionSettings(call_timeout=0.001, key_margin=settings.EXECUTION.key_margin)
    with override_settings(EXECUTION=quick):
        yield
