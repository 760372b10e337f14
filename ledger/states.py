"""The words for what became of an operation and of an attempt."""

from django.db.models import TextChoices


class OperationState(TextChoices):
    """Five states that give an operator four answers: not started, happened, did not happen, unknown."""

    NOT_STARTED = "not_started"
    STARTED = "started"
    COMMITTED = "committed"
    FAILED_BEFORE_COMMIT = "failed_before_commit"
    OUTCOME_UNKNOWN = "outcome_unknown"


UNRESOLVED = (OperationState.STARTED, OperationState.OUTCOME_UNKNOWN)
SETTLED = (OperationState.COMMITTED, OperationState.FAILED_BEFORE_COMMIT)


class AttemptOutcome(TextChoices):
    """How an attempt ended. ``superseded`` is written by the next grant, every other word by the worker itself."""

    COMMITTED = "committed"
    NOT_SENT = "not_sent"
    BUSY = "busy"
    IN_PROGRESS = "in_progress"
    REFUSED = "refused"
    UNCERTAIN = "uncertain"
    SUPERSEDED = "superseded"


NEVER_SENT = (AttemptOutcome.NOT_SENT, AttemptOutcome.BUSY)
"""Outcomes that prove the sink did nothing in that attempt."""


class EnforcementClass(TextChoices):
    """What keeps a tool's effect from happening twice. A tool version is exactly one."""

    PROVIDER_KEY = "provider_key"
    OWNED_WRITE = "owned_write"
    NATURAL_REFERENCE = "natural_reference"
    NONE = "none"


class ControlEventKind(TextChoices):
    """What the controls did, one row each."""

    REPLAY = "replay"
    VERSION_CONFLICT = "version_conflict"
    FINGERPRINT_CONFLICT = "fingerprint_conflict"
    FENCED_WRITE = "fenced_write"
    REFUSED_ACT = "refused_act"
    REFUSED_CLAIM = "refused_claim"
    BUDGET_REFUSAL = "budget_refusal"
    SERIALIZATION_RETRY = "serialization_retry"
    SERIALIZATION_EXHAUSTED = "serialization_exhausted"
    BUSINESS_DUPLICATE = "business_duplicate"
    EARLIER_EFFECT = "earlier_effect"
    CORRECTION = "correction"
    BREAKER_OPENED = "breaker_opened"
    SET_ASIDE = "set_aside"
    REFUSED_EVENT = "refused_event"


class AttestedOutcome(TextChoices):
    """What a person can say about an outcome that no sink could tell."""

    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"
    STILL_UNKNOWN = "still_unknown"


class BudgetSpan(TextChoices):
    """How often a budget begins anew: at midnight UTC, of every day, Monday, or first of the month."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class FindingKind(TextChoices):
    """A disagreement between the ledger and a sink."""

    MISSING = "missing"
    UNRECORDED = "unrecorded"
    TWICE = "twice"
    DIFFERS = "differs"
    REVERSED = "reversed"
    LATE = "late"
    FOREIGN = "foreign"
