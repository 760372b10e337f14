"""The words for where a case stands and what people may do about it."""

from django.db.models import TextChoices


class CaseState(TextChoices):
    """Where a case stands; the table of moves is declared on ``approvals.models.Case``."""

    PENDING = "pending"
    RETURNED = "returned"
    HELD = "held"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    EXECUTING = "executing"
    EXECUTED = "executed"
    FAILED = "failed"
    UNKNOWN = "unknown"


OPEN = (CaseState.PENDING, CaseState.RETURNED, CaseState.HELD)
"""Waiting for a person or for the agent; the clock can still expire these."""


ENDED = (CaseState.REJECTED, CaseState.WITHDRAWN, CaseState.EXPIRED, CaseState.FAILED)
"""Nothing came of it, and nothing will unless somebody proposes it again or reopens it."""


class Act(TextChoices):
    """What a revision records: one word for each thing that can be done to a case."""

    PROPOSED = "proposed"
    REVISED = "revised"
    APPROVED = "approved"
    REJECTED = "rejected"
    RETURNED = "returned"
    HELD = "held"
    RELEASED = "released"
    REVOKED = "revoked"
    REOPENED = "reopened"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    LAPSED = "lapsed"
    STOPPED = "stopped"
    CLAIMED = "claimed"
    EXECUTED = "executed"
    FAILED = "failed"
    LOST_SIGHT = "lost_sight"
    CORRECTED = "corrected"


class Verdict(TextChoices):
    """What a person can say about one revision."""

    APPROVE = "approve"
    REJECT = "reject"
    REQUEST_CHANGES = "request_changes"
    HOLD = "hold"
    RELEASE = "release"
    REVOKE = "revoke"
    REOPEN = "reopen"
