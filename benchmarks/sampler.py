"""Where a process spends its time: every few milliseconds, what each of its threads is doing."""

import atexit
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

_EVERY = 0.004
_OURS = ("/workers/", "/ledger/", "/approvals/", "/accounts/", "/benchmarks/")
_IDLE = ("threading.py:wait", "queue.py:get", "thread.py:_worker", "selectors.py:select")


def start(output: Path) -> None:
    """Samples until the process ends, then writes what was seen to ``output``."""
    seen: Counter[tuple[str, str, str]] = Counter()
    stopped = threading.Event()
    thread = threading.Thread(target=_sample, args=(seen, stopped), name="sampler", daemon=True)
    thread.start()

    def write() -> None:
        stopped.set()
        thread.join()
        lines = ["\t".join((*what, str(count))) for what, count in seen.most_common()]
        output.write_text("\n".join(lines) + "\n")

    atexit.register(write)


def _sample(seen: Counter[tuple[str, str, str]], stopped: threading.Event) -> None:
    mine = threading.get_ident()
    while not stopped.wait(_EVERY):
        names = {thread.ident: thread.name.split("_")[0] for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():  # noqa: SLF001  there is no public way to see them
            if ident != mine and (what := _what(frame)) is not None:
                seen[(names.get(ident, "?"), *what)] += 1


def _what(frame: FrameType) -> tuple[str, str] | None:
    """(our function, what it is in), or None for a thread that waits for work."""
    inner, ours = _place(frame), ""
    if any(inner.endswith(each) for each in _IDLE):
        return None
    at: FrameType | None = frame
    while at is not None and not ours:
        if any(each in at.f_code.co_filename for each in _OURS) and ".venv" not in at.f_code.co_filename:
            ours = _place(at)
        at = at.f_back
    return ours or "-", inner


def _place(frame: FrameType) -> str:
    name = frame.f_code.co_filename
    return f"{'/'.join(Path(name).parts[-2:])}:{frame.f_code.co_name}"


def read(output: Path) -> list[tuple[str, str, str, int]]:
    """(thread, our function, what it is in, samples), most first."""
    rows = [line.split("\t") for line in output.read_text().splitlines()]
    return [(thread, ours, inner, int(count)) for thread, ours, inner, count in rows]


def seconds(samples: int) -> float:
    """About how long a thread was seen at something."""
    return samples * _EVERY
