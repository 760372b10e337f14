"""Deadlines: never rewritten; the time an organisation or a tool stood still is added where one is checked."""

from datetime import datetime

from django.db.models import DurationField, F, Func, Q
from django.db.models.functions import Now

from approvals.models import Case
from ledger import clock, halts

_HALTED_TIME = Func(
    F("tenant_id"),
    F("tool_id"),
    F("proposal__created_at"),
    Now(),
    function="halted_time",
    output_field=DurationField(),
)
PASSED = Q(proposal__expires_at__lte=Now()) & Q(proposal__expires_at__lte=Now() - _HALTED_TIME)
"""``passed`` for a query over cases."""


def passed(case: Case) -> bool:
    """Whether the deadline of the case's proposal is over, by the database's clock."""
    now = clock.now()
    return case.proposal.expires_at <= now and deadline(case) <= now


def deadline(case: Case) -> datetime:
    """When the case expires, as it stands now: later by every halt since it was proposed."""
    proposal = case.proposal
    stood_still = halts.extension(tenant_id=case.tenant_id, tool_id=case.tool_id, since=proposal.created_at)
    return proposal.expires_at + stood_still
