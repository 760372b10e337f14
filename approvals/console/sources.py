"""Who or what did something, as the subject of a sentence."""


def worker_named(name: str | None) -> str:
    """A worker as the subject of a sentence: ``worker-a`` says it by itself, ``a@host`` does not."""
    return str(name) if str(name).lower().startswith("worker") else f"Worker {name}"


def source_in_words(source: str) -> str:
    """Who tried, as a subject: ``refund-agent``, ``Worker a@host``, ``The queue``."""
    kind, _, name = source.partition(":")
    if kind in ("worker", "system"):
        return worker_named(name)
    return f"The queue, at {name}," if kind == "queue" else name
