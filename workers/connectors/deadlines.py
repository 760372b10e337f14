"""One moment at which a connection ends, for libraries that give every read a time of its own."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def cut_at(deadline: float, fileno: Callable[[], int]) -> Iterator[None]:
    """Shuts the connection at this moment of the monotonic clock, unless the block has ended before."""
    timer = threading.Timer(max(deadline - time.monotonic(), 0.0), _shut, [fileno])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # it must not shut what this number means next


def _shut(fileno: Callable[[], int]) -> None:
    try:
        with socket.socket(fileno=os.dup(fileno())) as twin:
            twin.shutdown(socket.SHUT_RDWR)
    except Exception:  # noqa: BLE001  whatever the library says of a connection that is gone, it is gone
        return
