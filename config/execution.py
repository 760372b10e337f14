"""How long each step of carrying out an operation may take. Every value is in seconds.

Read once at start from ``COUNTERSIGN_<NAME>`` in the environment. An unknown name or a value that
is not a positive number stops the start: a lease that silently became zero is how two workers
come to hold one operation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from django.core.exceptions import ImproperlyConfigured

PREFIX = "COUNTERSIGN_"


@dataclass(frozen=True, slots=True)
class ExecutionSettings:
    """Times of the claim → perform → record protocol (docs/protocol.md)."""

    lease: float = 30.0
    """A grant's lease; renewed every third of it while the call runs."""
    call_timeout: float = 20.0
    """The longest one request to a sink may take; heartbeats end with it."""
    sweep: float = 2.0
    """Pause between two looks for due work, whatever the queue says."""
    backoff: float = 2.0
    """First wait before an operation is granted again; doubles each time, up to ``backoff_most``."""
    backoff_most: float = 300.0
    database_timeout: float = 10.0
    """Lock, statement and idle-in-transaction limit of every connection; below the lease, so that a
    stopped worker cannot block its successor."""
    key_margin: float = 600.0
    """How long before a provider's key window closes the last repeat may leave."""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            if not getattr(self, name) > 0:
                raise ImproperlyConfigured(f"{PREFIX}{name.upper()} must be more than 0 seconds.")
        if self.key_margin < self.call_timeout:
            raise ImproperlyConfigured(f"{PREFIX}KEY_MARGIN must not be below {PREFIX}CALL_TIMEOUT.")
        if self.database_timeout >= self.lease:
            raise ImproperlyConfigured(
                f"{PREFIX}DATABASE_TIMEOUT ({self.database_timeout:g} s) must be below"
                f" {PREFIX}LEASE ({self.lease:g} s)."
            )


def read(environ: Mapping[str, str]) -> ExecutionSettings:
    """Returns the settings the environment asks for; raises ImproperlyConfigured naming the variable."""
    known = {f"{PREFIX}{field.name.upper()}": field.name for field in fields(ExecutionSettings)}
    given = {name: value for name, value in environ.items() if name.startswith(PREFIX)}
    if unknown := sorted(given.keys() - known.keys()):
        raise ImproperlyConfigured(f"Unknown setting {unknown[0]}. Known: {', '.join(sorted(known))}.")
    return ExecutionSettings(**{known[name]: _seconds(name, value) for name, value in given.items()})


def _seconds(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a number of seconds, not {value!r}.") from None
