"""Budgets: how much a tenant, a tool or an agent may move in a day, a week or a month, in one currency.

They may overlap; a claim reserves in all that apply or in none. A reservation belongs to its operation, in the period
of its claim, until the outcome is final: then it is consumed, or released (docs/protocol.md, Budgets).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from accounts.sql import Queries
from ledger.models import Budget, Order
from ledger.money import digits
from ledger.picks import Picked
from ledger.states import BudgetSpan

QUERIES = Queries(Path(__file__).with_name("budgets.sql"))


class NoRoom(Exception):
    """A budget has no room for this amount now. It waits for the next period, or for what others release."""

    def __init__(self, budget_ids: Collection[int]) -> None:
        super().__init__(self.__doc__)
        self.budget_ids = sorted(budget_ids)


@dataclass(frozen=True, slots=True)
class Room:
    """What a budget has left in its present period, in minor units; below zero where evidence was booked above it."""

    period_id: int
    budget_id: int
    minor: int


def make(
    *,
    tenant_id: UUID,
    span: BudgetSpan,
    currency: str,
    limit_minor: int,
    by: str,
    tool_id: int | None = None,
    agent_id: int | None = None,
) -> Budget:
    """Opens a budget; what is claimed from now on counts. ``by`` is the source, e.g. ``person:Adam Demo``.

    Raises UnknownCurrency; IntegrityError ``one_open_budget_per_scope`` where there is one for the same scope.
    """
    digits(currency)
    return Budget.objects.create(
        tenant_id=tenant_id,
        tool_id=tool_id,
        agent_id=agent_id,
        span=span,
        currency=currency,
        limit_minor=limit_minor,
        made_by=by[:120],
    )


def close(*, tenant_id: UUID, budget_id: int, by: str) -> bool:
    """Closes an open budget of the tenant; returns whether there was one. Its counts stay."""
    open_one = Budget.objects.filter(pk=budget_id, tenant_id=tenant_id, closed_at=None)
    return open_one.update(closed_at=Now(), closed_by=by[:120]) == 1


def replace(*, tenant_id: UUID, budget_id: int, limit_minor: int, by: str) -> Budget | None:
    """Closes an open budget and opens one of another limit in its place; None where it is not open any more.

    At once, so that no claim falls between the two. What the present period has counted counts on: used and reserved,
    by the same operations.
    """
    with transaction.atomic():
        QUERIES.rows("make_periods", budgets=[budget_id])
        (period,) = QUERIES.rows("hold_period", budget=budget_id)
        if not close(tenant_id=tenant_id, budget_id=budget_id, by=by):
            return None
        old = Budget.objects.get(pk=budget_id)
        made = make(
            tenant_id=tenant_id,
            span=BudgetSpan(old.span),
            currency=old.currency,
            limit_minor=limit_minor,
            by=by,
            tool_id=old.tool_id,
            agent_id=old.agent_id,
        )
        QUERIES.rows("carry_over", budget=made.pk, period=period.id)
    return made


def applying(picked: Iterable[Picked]) -> dict[int, list[int]]:
    """{order id: budgets that count its money}, for those that any budget counts."""
    moving = [each for each in picked if each.amount_minor is not None]
    if not moving:
        return {}
    rows = QUERIES.rows("open_budgets", tenants=sorted({each.tenant_id for each in moving}))
    counting = {
        each.order_id: [
            row.id for row in rows if _counts(row, each.tenant_id, each.tool_id, each.agent_id, each.currency)
        ]
        for each in moving
    }
    return {order_id: budgets for order_id, budgets in counting.items() if budgets}


def _counts(budget: Any, tenant_id: UUID, tool_id: int, agent_id: int | None, currency: str | None) -> bool:
    return (
        budget.tenant_id == tenant_id
        and budget.currency == currency
        and budget.tool_id in (None, tool_id)
        and budget.agent_id in (None, agent_id)
    )


def rooms(budget_ids: Collection[int]) -> list[Room]:
    """What the budgets have left now, each period made if this is its first look."""
    QUERIES.rows("make_periods", budgets=sorted(budget_ids))
    rows = QUERIES.rows("room", budgets=sorted(budget_ids))
    return [Room(row.id, row.budget_id, row.room) for row in rows]


def reserve(*, order_id: int, amount_minor: int, budget_ids: Collection[int]) -> None:
    """Reserves the amount in all of the budgets, or raises NoRoom. Call it in a SERIALIZABLE transaction."""
    found = rooms(budget_ids)
    if short := [room.budget_id for room in found if room.minor < amount_minor]:
        raise NoRoom(short)
    reserved = QUERIES.rows(
        "reserve", order_id=order_id, amount=amount_minor, periods=[room.period_id for room in found]
    )
    if len(reserved) != len(budget_ids):
        raise NoRoom(budget_ids)


def settle(*, orders: Collection[int], committed: Collection[int]) -> None:
    """Consumes the reservations of those orders that happened, releases those of the others."""
    if not orders:
        return
    if QUERIES.rows("lock_periods_of", orders=list(orders)):
        QUERIES.rows("settle_reservations", orders=list(orders), committed=list(committed))


def book(order: Order) -> None:
    """Counts an effect that is proven after its reservation was released, or that never had one: above any limit."""
    if order.amount_minor is None:
        return
    QUERIES.rows("lock_periods_of", orders=[order.pk])
    if QUERIES.rows("consume_released", order_id=order.pk):
        return
    tool_id = order.tool_version.tool_id
    budgets = [
        row.id
        for row in QUERIES.rows("open_budgets", tenants=[order.tenant_id])
        if _counts(row, order.tenant_id, tool_id, order.agent_id, order.currency)
    ]
    if budgets:
        periods = [room.period_id for room in rooms(budgets)]
        QUERIES.rows("consume_unreserved", order_id=order.pk, amount=order.amount_minor, periods=periods)
