"""Cases after a backup was restored: keys they may have been given since, and numbers that are not given again."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from accounts.sql import Queries
from approvals.models import Case
from approvals.states import CaseState
from ledger.identity import idempotency_key

QUERIES = Queries(Path(__file__).with_name("restored.sql"))

_REVISIONS = 25
"""How many revisions a case may have gone through between the backup and its approval."""


def keys_to_come(*, tenant_id: UUID) -> Iterator[tuple[int, set[str]]]:
    """(case, the idempotency keys its next approvals would have), for every case that has not been executed."""
    open_ones = Case.objects.filter(tenant_id=tenant_id).exclude(state=CaseState.EXECUTED)
    for case in open_ones.iterator():
        yield (
            case.pk,
            {
                idempotency_key(
                    tenant=tenant_id,
                    reference=case.reference,
                    action=case.action,
                    target=case.target,
                    step=case.step,
                    approved_revision=case.revision + ahead,
                )
                for ahead in range(1, _REVISIONS + 1)
            },
        )


def skip_case_numbers(*, by: int) -> None:
    """Leaves so many case numbers out: an agent may still hold one that was given after the backup."""
    QUERIES.rows("skip_case_numbers", skipped=by)
