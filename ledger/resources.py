"""Fencing tokens outside of grants: raised above what a sink has seen, after the ledger itself has gone backwards."""

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from accounts.sql import Queries

QUERIES = Queries(Path(__file__).with_name("resources.sql"))


def raise_tokens(*, tenant_id: UUID, seen: Mapping[str, int]) -> int:
    """Raises each named resource's token to what its sink has seen, made if absent; returns how many were below.

    The next grant is one above, as always.
    """
    if not seen:
        return 0
    names, tokens = list(seen), list(seen.values())
    return len(QUERIES.rows("raise_tokens", tenant=tenant_id, names=names, tokens=tokens))


def skip_tokens(*, tenant_id: UUID, by: int) -> int:
    """Leaves so many tokens out for every resource with an operation that is not settled; returns how many resources.

    For sinks without a fence: a worker from before the restore may still hold one of them.
    """
    return len(QUERIES.rows("skip_tokens", tenant=tenant_id, skipped=by))


def skip_order_numbers(*, by: int) -> None:
    """Leaves so many order numbers out: those given after the backup are never given again."""
    QUERIES.rows("skip_order_numbers", skipped=by)
