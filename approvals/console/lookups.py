"""What look-ups can settle by themselves, and why, of some operations, only a person can."""

from collections.abc import Mapping
from datetime import datetime

from approvals.console.answers import Circumstances
from approvals.console.known import Known
from ledger.models import Attempt
from ledger.states import NEVER_SENT, EnforcementClass

OVERDUE = "overdue"
"""Why a person looks at what look-ups could still settle, but have not within the tool's objective."""


def maybe_sent(attempt: Attempt) -> bool:
    """Whether the attempt may have reached the sink."""
    return attempt.sent is not False and attempt.outcome not in NEVER_SENT


def why_a_person(known: Known, now: datetime) -> str:
    """Why look-ups alone do not settle it, in a few words; empty while they can, within the tool's objective."""
    if known.operation.reason == "set_aside":
        return "set aside"
    if why := _beyond_look_ups(known, now):
        return why
    return OVERDUE if now - since(known) > known.operation.order.tool_version.objective else ""


def since(known: Known) -> datetime:
    """Since when it may have happened; of what never left a worker's hands: since when its lease is over."""
    sent = [each for each in known.attempts if maybe_sent(each)]
    operation = known.operation
    return sent[0].started_at if sent else operation.due_at or operation.order.created_at


def _beyond_look_ups(known: Known, now: datetime) -> str:
    if not any(maybe_sent(each) for each in known.attempts):
        return ""  # whatever it is, it is sent by itself
    if why := _NOT_OURS_TO_SAY.get(known.operation.reason or ""):
        return why
    match known.operation.order.tool_version.enforcement:
        case EnforcementClass.NONE:
            return "no look-up possible"
        case EnforcementClass.NATURAL_REFERENCE:
            return "not shown by the sink" if _settle_time_is_over(known, now) else ""
        case EnforcementClass.PROVIDER_KEY:
            return _key_is_spent(known, now)
    return ""


_NOT_OURS_TO_SAY: Mapping[str, str] = {
    "differs": "the sink shows other content",
    "undone": "reversed at the sink",
    "earlier_effect": "an earlier approval has happened",
}


def _settle_time_is_over(known: Known, now: datetime) -> bool:
    """Whether the sink was asked after the time by which its own records show what it did."""
    sent = [each for each in known.attempts if maybe_sent(each)]
    left_at = sent[-1].ended_at or sent[-1].started_at
    over = left_at + known.operation.order.tool_version.settle_time
    return over <= now and any(
        each.lookups and each.ended_at and each.ended_at >= over for each in known.attempts
    )


def _key_is_spent(known: Known, now: datetime) -> str:
    if any(each.answer_stored for each in known.attempts):
        return "the sink keeps a failure"
    good_until = Circumstances(known, now, standing=False).key_good_until
    return "key no longer good" if good_until is None or good_until <= now else ""
