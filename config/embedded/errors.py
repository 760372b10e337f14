"""Everything that can keep an embedded service from running; each message says what to do next."""

from pathlib import Path


class EmbeddedServiceError(Exception):
    """An embedded service could not do its work."""


class AlreadyRunning(EmbeddedServiceError):
    """Another process holds the lock."""

    def __init__(self, what: str, lock: Path, holder: str) -> None:
        super().__init__(
            f"{what} is already running from this folder (process {holder or 'unknown'} holds {lock}). "
            "Stop it with Ctrl-C in its terminal, or give this one its own folder: VAR_DIR=/another/folder."
        )


class NotReady(EmbeddedServiceError):
    """A process ended, or stayed silent, before it was ready for work."""

    def __init__(self, name: str, reason: str, log: Path, last_lines: str) -> None:
        super().__init__(f"{name} {reason}. The end of {log}:\n{last_lines or '(empty)'}")


class PortBusy(EmbeddedServiceError):
    """The port is taken by another process."""

    def __init__(self, host: str, port: int, variable: str) -> None:
        super().__init__(
            f"Port {port} on {host} is in use. Stop what listens there, "
            f"or choose another port: {variable}={port + 1 if port < 65535 else port - 1}."
        )


class UnusableDatabase(EmbeddedServiceError):
    """The folder holds a database that this version of PostgreSQL cannot open."""
