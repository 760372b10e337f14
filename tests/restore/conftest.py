"""Real sinks to execute on, and a real backup to go back to."""

from tests.crashes.conftest import own_database, sandbox_url
from tests.real_sinks import sinks, world

__all__ = ["own_database", "sandbox_url", "sinks", "world"]
