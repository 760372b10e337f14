"""The claim, composed: the ledger locks and picks, the cases advance, the ledger grants. One short transaction."""

from collections.abc import Sequence

from django.db import transaction

from approvals import execution
from approvals.execution import Answer, Verb
from ledger import claims, control_events, findings
from ledger.claims import Grant, Picked
from ledger.states import ControlEventKind

_BUSY_AGAIN = 0.2
"""Seconds until an operation is looked at again whose case somebody was deciding on."""
_DISPUTED_AGAIN = 5.0
"""Seconds until an operation is looked at again that an open finding keeps back."""


def claim(*, worker: str, most: int, after: int, lease: float) -> tuple[list[Grant], int]:
    """Claims up to ``most`` operations that are due and not started; returns the grants and where to go on.

    What no longer may happen is ended here, in the same transaction, and counted.
    """
    with transaction.atomic():
        picked, go_on = claims.pick(after=after, most=most)
        answers = execution.advance(picked, worker=worker) if picked else {}
        by_verb = {verb: [each for each in picked if answers[each.order_id].verb == verb] for verb in Verb}
        claims.end({each.order_id: answers[each.order_id].reason for each in by_verb[Verb.STALE]})
        _put_off(by_verb[Verb.BUSY], answers)
        moved = by_verb[Verb.MOVED]
        grants = claims.grant(moved, worker=worker, lease=lease, standing={each.order_id for each in moved})
        for each in by_verb[Verb.STALE]:
            _count_refusal(each, answers[each.order_id].reason, worker)
    return grants, go_on


def take_over(*, worker: str, most: int, lease: float) -> list[Grant]:
    """Grants up to ``most`` unresolved operations anew whose lease or back-off is over, each under a higher token.

    What was never sent is checked as at the claim, and ends as failed where it may no longer happen.
    """
    with transaction.atomic():
        picked = _without_disputed(claims.pick_again(most=most))
        standing = execution.standing(picked) if picked else set()
        ending = [each for each in picked if _is_over(each, standing)]
        ended = (
            execution.fail_never_sent([each.subject for each in ending], worker=worker) if ending else set()
        )
        claims.end({each.order_id: "never_sent" for each in ending if each.subject in ended})
        for each in ending:
            if each.subject in ended:
                _count_refusal(each, each.refusal or "never_sent", worker)
        going_on = [each for each in picked if each not in ending]
        return claims.grant(going_on, worker=worker, lease=lease, standing=standing)


def _without_disputed(picked: Sequence[Picked]) -> list[Picked]:
    """Puts off what was never sent while a finding about it is open; what may have been sent is looked up still."""
    disputed = findings.disputed([each.subject for each in picked]) if picked else set()
    waiting = {each.order_id for each in picked if not each.maybe_sent and each.subject in disputed}
    claims.put_off(list(waiting), seconds=_DISPUTED_AGAIN)
    return [each for each in picked if each.order_id not in waiting]


def _is_over(picked: Picked, standing: set[int]) -> bool:
    """Nothing of it was ever sent, and a check of the claim now ends it."""
    return not picked.maybe_sent and (picked.order_id not in standing or picked.refusal is not None)


def _put_off(busy: Sequence[Picked], answers: dict[int, Answer]) -> None:
    for reason, seconds in (("case_busy", _BUSY_AGAIN), ("finding_open", _DISPUTED_AGAIN)):
        claims.put_off(
            [each.order_id for each in busy if answers[each.order_id].reason == reason], seconds=seconds
        )


def _count_refusal(picked: Picked, reason: str, worker: str) -> None:
    """In the claim's own transaction: what it ends is committed with it, and so is the count."""
    stale = reason == "resource_moved"
    control_events.record(
        tenant_id=picked.tenant_id,
        kind=ControlEventKind.VERSION_CONFLICT if stale else ControlEventKind.REFUSED_CLAIM,
        source=f"worker:{worker}",
        action=picked.operation.tool.name,
        subject=picked.subject,
        key=picked.key,
        reason=reason,
    )
