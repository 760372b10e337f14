"""The claim, composed: the ledger locks and picks, the cases advance, the ledger grants. One short transaction."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DataError, IntegrityError, transaction

from approvals import execution
from approvals.execution import Verb
from ledger import budgets, claims, control_events, findings, halts, picks, serializable
from ledger.claims import Grant
from ledger.picks import Picked
from ledger.serializable import Exhausted
from ledger.states import ControlEventKind, OperationState
from workers.slots import Room

log = logging.getLogger(__name__)

_WAITS = {
    "case_busy": 0.2,
    "halting": 0.2,
    "finding_open": 5.0,
    "halted": 2.0,
    "budget": 5.0,
}
"""Seconds until a waiting operation is looked at again, by what it waits for."""
_MOST_LOST = 5
"""So many workers may fall silent over one operation before it is set aside: it may be what kills them."""


_BROKEN = 60.0
"""Seconds until an operation is looked at again whose own rows make a claim fail; somebody has to read the log."""
_REFUSED = (DataError, IntegrityError, RuntimeError)


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim came to: the grants, where the next one goes on, and resources whose operation needs a budget.

    Each of the latter is claimed by ``claim_reserving``, in a transaction of its own. ``more``: perhaps more is due
    than was taken.
    """

    grants: list[Grant]
    go_on: int
    reserving: list[int]
    more: bool


def claim(*, worker: str, most: int, after: int, lease: float, room: Room | None = None) -> Claimed:
    """Claims up to ``most`` operations that are due and not started; those the worker has no room for stay due.

    What no longer may happen is ended here, in the same transaction, and counted. Where one operation makes the claim
    fail, each is claimed by itself, and that one is put off.
    """
    most = most if room is None else min(most, room.most)
    if most <= 0:
        return Claimed([], after, [], more=True)
    picked: list[Picked] = []
    fitting: list[Picked] = []
    go_on = 0
    try:
        with picks.transaction_by_index():
            picked, go_on = picks.pick(after=after, most=most, full=room.full if room else ())
            fitting = [each for each in picked if room is None or room.take(each.version)]
            grants, reserving = _claim(fitting, worker=worker, lease=lease)
    except _REFUSED:
        log.exception("a claim of %d was refused; each is claimed by itself", len(fitting))
        grants, reserving = [], []
        for each in fitting:
            alone = _claim_alone(each, worker=worker, lease=lease)
            grants, reserving = grants + alone[0], reserving + alone[1]
    return Claimed(grants, go_on, reserving, more=len(fitting) < len(picked) or len(picked) == most)


def _claim(picked: Sequence[Picked], *, worker: str, lease: float) -> tuple[list[Grant], list[int]]:
    """The grants, and the resources of what a budget counts."""
    free = _put_off_waiting(picked)
    reserving = budgets.applying(free)
    grants = _go_on([each for each in free if each.order_id not in reserving], worker=worker, lease=lease)
    return grants, [each.resource_id for each in free if each.order_id in reserving]


def _claim_alone(picked: Picked, *, worker: str, lease: float) -> tuple[list[Grant], list[int]]:
    try:
        with picks.transaction_by_index():
            if not picks.lock_free(picked.resource_id):
                return [], []
            return _claim(picks.pick_of([picked.resource_id]), worker=worker, lease=lease)
    except _REFUSED:
        _put_off_broken(picked.order_id)
        return [], []


def _put_off_broken(order_id: int) -> None:
    log.error("operation %d makes every claim fail; it is put off", order_id)
    claims.put_off([order_id], seconds=_BROKEN)


def claim_reserving(*, worker: str, resource_id: int, lease: float) -> list[Grant]:
    """Claims the due operation of one resource and reserves its money in every budget that counts it, or in none.

    SERIALIZABLE, and retried whole. Without room, or when the retries are used up, the operation stays due and the
    refusal is counted: nobody is told that it failed. One whose own rows make this fail is put off.
    """
    picked: list[Picked] = []

    def attempt() -> list[Grant]:
        if not picks.lock_free(resource_id):
            return []
        picked[:] = _put_off_waiting(picks.pick_of([resource_id]))
        grants = _go_on(picked, worker=worker, lease=lease)
        granted = {grant.order_id for grant in grants}
        counting = budgets.applying(picked)
        for each in picked:
            if each.order_id in granted and each.order_id in counting:
                _reserve(each, counting[each.order_id])
        return grants

    def retried(sqlstate: str) -> None:
        _count(picked, ControlEventKind.SERIALIZATION_RETRY, worker, sqlstate=sqlstate)

    try:
        return serializable.run(attempt, retried=retried)
    except budgets.NoRoom as full:
        _refuse_for_budget(picked, full, worker)
    except Exhausted as exhausted:
        _count(picked, ControlEventKind.SERIALIZATION_EXHAUSTED, worker, sqlstate=exhausted.sqlstate)
    except _REFUSED:
        log.exception("the claim of resource %d was refused", resource_id)
        for each in picked:
            _put_off_broken(each.order_id)
    return []


def _reserve(picked: Picked, budget_ids: Sequence[int]) -> None:
    assert picked.amount_minor is not None  # else no budget would count it
    budgets.reserve(order_id=picked.order_id, amount_minor=picked.amount_minor, budget_ids=budget_ids)


def _refuse_for_budget(refused: Sequence[Picked], full: budgets.NoRoom, worker: str) -> None:
    """Counts it once an operation, however often it is looked at again."""
    with transaction.atomic():
        claims.put_off([each.order_id for each in refused], seconds=_WAITS["budget"])
        new = [
            each
            for each in refused
            if not control_events.is_recorded(ControlEventKind.BUDGET_REFUSAL, each.key)
        ]
        _count(new, ControlEventKind.BUDGET_REFUSAL, worker, budgets=full.budget_ids)


def _go_on(picked: Sequence[Picked], *, worker: str, lease: float) -> list[Grant]:
    """Grants what its case lets go on, ends what it does not, puts off what has to wait."""
    answers = execution.advance(picked, worker=worker) if picked else {}
    stale = {
        each.order_id: answers[each.order_id].reason
        for each in picked
        if answers[each.order_id].verb is Verb.STALE
    }
    claims.end(stale)
    _put_off(
        {
            each.order_id: answers[each.order_id].reason
            for each in picked
            if answers[each.order_id].verb is Verb.BUSY
        }
    )
    moved = [each for each in picked if answers[each.order_id].verb is Verb.MOVED]
    grants = claims.grant(moved, worker=worker, lease=lease, standing={each.order_id for each in moved})
    for each in picked:
        if each.order_id in stale:
            _count_end(each, stale[each.order_id], worker)
    return grants


def take_over(*, worker: str, most: int, lease: float) -> list[Grant]:
    """Grants up to ``most`` unresolved operations anew whose lease or back-off is over, each under a higher token.

    What was never sent is checked as at the claim, and ends as failed where it may no longer happen. What has
    silenced too many workers is set aside. Under a halt only look-ups go on. Where one operation makes this fail, each
    is taken over by itself, and that one is put off.
    """
    due = picks.due_again(most=most)
    try:
        return _take_over(due, worker=worker, lease=lease)
    except _REFUSED:
        log.exception("a take-over of %d was refused; each is taken over by itself", len(due))
        return [grant for each in due for grant in _take_over_alone(each, worker=worker, lease=lease)]


def _take_over_alone(due: tuple[int, int], *, worker: str, lease: float) -> list[Grant]:
    try:
        return _take_over([due], worker=worker, lease=lease)
    except _REFUSED:
        _put_off_broken(due[0])
        return []


def _take_over(due: Sequence[tuple[int, int]], *, worker: str, lease: float) -> list[Grant]:
    if not due:
        return []
    with picks.transaction_by_index():
        picked = _without_poison(_without_waiting(picks.pick_again(due)), worker)
        still = halts.standstill({each.tenant_id for each in picked})
        standing = execution.standing(picked) if picked else set()
        ending = [each for each in picked if _is_over(each, standing)]
        ended = (
            execution.fail_never_sent([each.subject for each in ending], worker=worker) if ending else set()
        )
        never_sent = [each for each in ending if each.subject in ended]
        claims.end({each.order_id: "never_sent" for each in never_sent})
        budgets.settle(orders=[each.order_id for each in never_sent], committed=[])
        for each in never_sent:
            _count_end(each, each.refusal or "never_sent", worker)
        standing -= {each.order_id for each in picked if each.refusal is not None and not each.maybe_sent}
        sending = {
            each.order_id
            for each in picked
            if each.order_id in standing and not still.reason(tenant_id=each.tenant_id, tool_id=each.tool_id)
        }
        going_on = [each for each in picked if each not in ending]
        disputed = findings.disputed([each.subject for each in going_on]) if going_on else set()
        lapsed = {
            each.order_id
            for each in going_on
            if each.order_id not in standing and each.subject not in disputed
        }
        return claims.grant(going_on, worker=worker, lease=lease, standing=sending, lapsed=lapsed)


def _without_waiting(picked: Sequence[Picked]) -> list[Picked]:
    """Puts off what was never sent while it has to wait; what may have been sent is looked up all the same."""
    never_sent = [each for each in picked if not each.maybe_sent]
    free = {each.order_id for each in _put_off_waiting(never_sent)}
    disputed = findings.disputed([each.subject for each in never_sent]) if never_sent else set()
    waiting = {each.order_id: "finding_open" for each in never_sent if each.subject in disputed}
    _put_off({order_id: reason for order_id, reason in waiting.items() if order_id in free})
    return [
        each for each in picked if each.maybe_sent or (each.order_id in free and each.order_id not in waiting)
    ]


def _without_poison(picked: Sequence[Picked], worker: str) -> list[Picked]:
    """Sets aside what has silenced too many workers, the last one just now."""
    poison = [each for each in picked if each.fallen_silent and each.history.lost >= _MOST_LOST]
    if not poison:
        return list(picked)
    free = execution.lock_free([each.subject for each in poison])
    aside = [each for each in poison if each.subject in free]
    execution.settle(
        {
            each.subject: (OperationState.OUTCOME_UNKNOWN, "set_aside")
            for each in aside
            if each.state == OperationState.STARTED
        },
        worker=worker,
    )
    claims.set_aside([each.order_id for each in aside])
    _count(aside, ControlEventKind.SET_ASIDE, worker)
    return [each for each in picked if each not in poison]


def _is_over(picked: Picked, standing: set[int]) -> bool:
    """Nothing of it was ever sent, and a check of the claim now ends it. What is unknown is looked up all the same."""
    if picked.maybe_sent or picked.state != OperationState.STARTED:
        return False
    return picked.order_id not in standing or picked.refusal is not None


def _put_off_waiting(picked: Sequence[Picked]) -> list[Picked]:
    """Puts off what must not be sent now, because its organisation is halted or its tool paused; returns the others.

    The tenants are held shared, so that a halt waits for this transaction and none commits after it.
    """
    if not picked:
        return []
    held = halts.hold_shared({each.tenant_id for each in picked})
    still = halts.standstill(held)
    reasons = {each.order_id: "halting" for each in picked if each.tenant_id not in held}
    for each in picked:
        if still.reason(tenant_id=each.tenant_id, tool_id=each.tool_id):
            reasons[each.order_id] = "halted"
    _put_off(reasons)
    return [each for each in picked if each.order_id not in reasons]


def _put_off(reasons: Mapping[int, str]) -> None:
    for reason, seconds in _WAITS.items():
        claims.put_off([order_id for order_id, why in reasons.items() if why == reason], seconds=seconds)


def _count_end(picked: Picked, reason: str, worker: str) -> None:
    """In the claim's own transaction: what it ends is committed with it, and so is the count."""
    stale = reason == "resource_moved"
    kind = ControlEventKind.VERSION_CONFLICT if stale else ControlEventKind.REFUSED_CLAIM
    _count([picked], kind, worker, reason=reason)


def _count(picked: Iterable[Picked], kind: ControlEventKind, worker: str, **detail: Any) -> None:
    for each in picked:
        control_events.record(
            tenant_id=each.tenant_id,
            kind=kind,
            source=f"worker:{worker}",
            action=each.tool,
            subject=each.subject,
            key=each.key,
            **detail,
        )
