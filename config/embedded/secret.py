"""The secret key of a folder: made at its first start, readable by its owner alone."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

_BYTES = 50


def secret_key(directory: Path) -> str:
    """Returns the folder's key; of two processes that make it at once, one makes it and both read that."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "secret-key"
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    if not path.exists():
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(_BYTES))
        with suppress(FileExistsError):
            os.link(unfinished, path)
        unfinished.unlink()
    return path.read_text()
