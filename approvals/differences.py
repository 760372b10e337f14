"""What changed between two contents of a case, as JSON pointers."""

from collections.abc import Iterator, Mapping
from typing import Any

from approvals import proposals
from approvals.models import Case, Revision
from ledger.schemas import pointer


def changed_since(case: Case, revision: int) -> list[str] | None:
    """Pointers to the material that is not what it was at that revision; None where the case never had it.

    Empty: only state or grounds changed, and what would happen is the same.
    """
    seen = Revision.objects.select_related("proposal").filter(case=case, number=revision).first()
    if seen is None:
        return None
    return list(changed_paths(proposals.material(seen.proposal), proposals.material(case.proposal)))


def changed_paths(before: Any, after: Any, *path: str | int) -> Iterator[str]:
    """Pointers to the values that differ, the deepest that names the difference; 1 and true differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            yield from changed_paths(before.get(name, _ABSENT), after.get(name, _ABSENT), *path, name)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from changed_paths(old, new, *path, index)
    elif type(before) is not type(after) or before != after:
        yield pointer(*path)


_ABSENT = object()
