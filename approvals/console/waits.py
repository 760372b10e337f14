"""Why an operation that is not started waits: what a claim would find in its way, said before one is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.urls import reverse

from approvals.console import budgets
from approvals.console.halts import Shown as ShownHalt
from approvals.console.halts import shown as shown_halts
from approvals.templatetags.times import zoned
from ledger import clock, findings, halts, tools
from ledger.models import Operation
from ledger.money import format_money


@dataclass(frozen=True, slots=True)
class Wait:
    """One reason, as ``ledger`` and workers name it; ``words`` go on after "Waits:"; ``url``: where to look."""

    reason: str
    words: str
    url: str = ""


def waits(operations: Sequence[Operation]) -> Mapping[int, Wait]:
    """{operation: why it waits} of those, all of one organisation and none started, that have something in the way."""
    if not operations:
        return {}
    tenant_id = operations[0].order.tenant_id
    checks = (_standing_still, _disputed, _delayed, _without_room)
    found: dict[int, Wait] = {}
    for check in checks:
        rest = [each for each in operations if each.order_id not in found]
        found |= check(tenant_id, rest)
    return found


def _standing_still(tenant_id: UUID, operations: Sequence[Operation]) -> dict[int, Wait]:
    rows = halts.open_ones(tenant_id=tenant_id).select_related("tool")
    now = {each.tool: each for each in shown_halts(rows)} if operations else {}
    if "" in now:
        return dict.fromkeys((each.order_id for each in operations), _halted(now[""]))
    return {each.order_id: _paused(now[each.tool.name]) for each in operations if each.tool.name in now}


def _halted(halt: ShownHalt) -> Wait:
    return Wait(
        "halted", f"the organisation is halted by {halt.who} since {zoned(halt.began_at)}.", reverse("halts")
    )


def _paused(halt: ShownHalt) -> Wait:
    until = f", until {zoned(halt.ends_at)}" if halt.ends_at else ""
    words = f"{halt.tool} is paused by {halt.who} since {zoned(halt.began_at)}{until}."
    return Wait("paused", words, reverse("tool", args=[halt.tool]))


def _disputed(_: UUID, operations: Sequence[Operation]) -> dict[int, Wait]:
    disputed = findings.disputed([each.order.subject for each in operations]) if operations else set()
    return {
        each.order_id: Wait(
            "finding_open",
            "ledger and sink disagree about its case.",
            reverse("case", args=[each.order.subject]),
        )
        for each in operations
        if each.order.subject in disputed
    }


def _delayed(_: UUID, operations: Sequence[Operation]) -> dict[int, Wait]:
    found, now = {}, clock.now()
    for each in operations:
        delay = tools.version(each.order.tool_version_id).dispatch_delay
        at = each.order.created_at + delay
        if delay and at > now:
            words = f"it may be sent from {zoned(at, 'seconds')} on; until then the approval can be revoked."
            found[each.order_id] = Wait("dispatch_delay", words)
    return found


def _without_room(tenant_id: UUID, operations: Sequence[Operation]) -> dict[int, Wait]:
    short = budgets.without_room(tenant_id, operations)
    return {
        order_id: Wait("budget", _short(budget), reverse("budgets")) for order_id, budget in short.items()
    }


def _short(budget: budgets.Shown) -> str:
    currency = budget.budget.currency
    limit, room = (
        format_money(budget.budget.limit_minor, currency),
        format_money(max(budget.room, 0), currency),
    )
    return f"the budget of {limit} {budget.every} for {budget.scope} has {room} left {budget.now}."
