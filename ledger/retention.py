"""Emptying what is past its horizon. One database function does it; what stays goes on refusing (docs/retention.md).

Keys, digests, fingerprints, states, references, amounts and times are kept for ever: the row is its own tombstone.
"""

from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from accounts.sql import Queries

QUERIES = Queries(Path(__file__).with_name("retention.sql"))


def orders_of(subjects: Collection[int]) -> dict[int, list[int]]:
    """{subject: its orders}, for those that have any."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for row in QUERIES.rows("orders_of", subjects=list(subjects)):
        found[row.subject].append(row.id)
    return dict(found)


def prunable(orders: Collection[int], *, erasing: bool = False) -> set[int]:
    """Those of the orders that may be emptied now: settled, nothing open about them, past their horizon."""
    rows = QUERIES.rows("prunable", orders=list(orders), erasing=erasing)
    return {row.order_id for row in rows}


def prune(*, orders: Collection[int], by: str, because: str, erasing: bool = False) -> int:
    """Empties the orders' content; returns how many had not been before.

    Raises IntegrityError ``pruned_only_past_the_horizon`` where one of them may not be; then none is.
    """
    if not orders:
        return 0
    rows = QUERIES.rows("prune", orders=sorted(orders), by=by[:120], because=because[:300], erasing=erasing)
    return int(rows[0].pruned)


def prune_leftovers(*, most: int) -> int:
    """Empties, past their own horizon, events that matched nothing, and reports that came after a pruning."""
    late = [row.operation_id for row in QUERIES.rows("late_reports", most=most)]
    prune(orders=late, by="retention", because="It came after the rest was removed.")
    rows = QUERIES.rows("prune_events", most=most)
    return len(late) + int(rows[0].pruned)
