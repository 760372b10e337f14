"""One holder per folder: an advisory lock that the kernel releases when its process ends, however it ends."""

import fcntl
import os
from pathlib import Path

from config.embedded.errors import AlreadyRunning


class Lock:
    """Held from `hold_lock` to `release`, or to the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


def hold_lock(path: Path, *, what: str) -> Lock:
    """Raises AlreadyRunning, naming the holder's process, while another has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunning(what, path, path.read_text().strip()) from None
    os.truncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return Lock(descriptor)
