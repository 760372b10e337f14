"""Budgets: how much may be moved in a time, what of it is used and reserved, and what is left."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from accounts.models import Agent
from approvals import budgets
from approvals.console.entrance import Visitor, act, page
from approvals.console.forms import Form, answer_refusal, see_other
from approvals.console.lists import Query
from approvals.console.sources import source_in_words
from approvals.errors import Refusal
from approvals.models import Case
from ledger import clock
from ledger.models import Budget, BudgetPeriod, Operation, Reservation, Tool
from ledger.money import MalformedAmount, UnknownCurrency, digits, format_amount, format_money, parse_amount
from ledger.states import BudgetSpan

_LARGEST = 2**63 - 1
_MOST_CLOSED = 50
_SPANS: Mapping[str, tuple[str, str, str]] = {
    BudgetSpan.DAY: ("a day", "today", "each day"),
    BudgetSpan.WEEK: ("a week", "this week", "each week, from Monday"),
    BudgetSpan.MONTH: ("a month", "this month", "each month"),
}
"""How a span is said of a limit, of what is left, and in the form."""
_BACK = ("/budgets/", "Budgets")


@dataclass(frozen=True, slots=True)
class Shown:
    """One budget in its present period, in minor units. ``open_count``: operations that hold a reservation now."""

    budget: Budget
    begins_on: date
    used: int
    reserved: int
    open_count: int = 0
    used_count: int = 0
    asked: int = 0

    @property
    def room(self) -> int:
        """What is left; below zero where evidence was booked above the limit."""
        return self.budget.limit_minor - self.used - self.reserved

    @property
    def fits(self) -> bool:
        """Whether what is asked for has room now."""
        return self.asked <= self.room

    @property
    def scope(self) -> str:
        """Whose money it counts: ``refund by refund-agent``, ``every tool``."""
        tool = self.budget.tool.name if self.budget.tool else "every tool"
        return f"{tool} by {self.budget.agent.name}" if self.budget.agent else tool

    @property
    def every(self) -> str:
        """``a day``, ``a week``, ``a month``."""
        return _SPANS[self.budget.span][0]

    @property
    def now(self) -> str:
        """``today``, ``this week``, ``this month``."""
        return _SPANS[self.budget.span][1]

    @property
    def meter(self) -> dict[str, float]:
        """Widths of used, reserved and asked in 100, cut at the limit."""
        limit = max(self.budget.limit_minor, 1)
        used = min(100.0, 100 * self.used / limit)
        reserved = min(100.0 - used, 100 * self.reserved / limit)
        asked = min(100.0 - used - reserved, 100 * self.asked / limit)
        return {
            "used": round(used, 1),
            "reserved": round(reserved, 1),
            "reserved_x": round(used, 1),
            "asked": round(asked, 1),
            "asked_x": round(used + reserved, 1),
        }

    @property
    def limit_panel(self) -> str:
        """The page's form that changes its limit."""
        return f"limit-{self.budget.pk}"

    @property
    def close_panel(self) -> str:
        """The page's form that closes it."""
        return f"close-{self.budget.pk}"

    @property
    def url(self) -> str:
        """Where the operations stand that it has counted in this period."""
        return f"{reverse('operations')}?budget={self.budget.pk}"

    @property
    def made_by(self) -> str:
        """Who opened it."""
        return source_in_words(self.budget.made_by)

    @property
    def in_words(self) -> str:
        """The meter for those who do not see it."""
        currency = self.budget.currency
        return (
            f"{format_amount(self.used, currency)} used and {format_amount(self.reserved, currency)} reserved"
            f" of {format_money(self.budget.limit_minor, currency)}"
        )


def period_begins(span: str, now: datetime) -> date:
    """The first day of the period that is now, in UTC, as the database has it."""
    today = now.astimezone(UTC).date()
    if span == BudgetSpan.WEEK:
        return today - timedelta(days=today.weekday())
    return today.replace(day=1) if span == BudgetSpan.MONTH else today


def shown(rows: Iterable[Budget], *, now: datetime, asked: int = 0, counted: bool = False) -> list[Shown]:
    """Budgets with what their present periods have seen; ``counted``: with how many operations, too."""
    wanted = {each.pk: each for each in rows}
    begins = {pk: period_begins(each.span, now) for pk, each in wanted.items()}
    periods = {
        period.budget_id: period
        for period in BudgetPeriod.objects.filter(budget__in=wanted, begins_on__in=set(begins.values()))
        if period.begins_on == begins[period.budget_id]
    }
    counts = _counts(periods.values()) if counted else {}
    return [
        Shown(
            budget=each,
            begins_on=begins[pk],
            used=periods[pk].consumed_minor if pk in periods else 0,
            reserved=periods[pk].reserved_minor if pk in periods else 0,
            open_count=counts.get(pk, (0, 0))[0],
            used_count=counts.get(pk, (0, 0))[1],
            asked=asked,
        )
        for pk, each in wanted.items()
    ]


def _counts(periods: Iterable[BudgetPeriod]) -> dict[int, tuple[int, int]]:
    """{budget: (operations whose reservation is open, operations that consumed theirs)}."""
    rows = Reservation.objects.filter(period__in=[each.pk for each in periods]).values_list(
        "period__budget_id"
    )
    counted = rows.annotate(
        held=Count("operation_id", filter=Q(consumed=None)),
        spent=Count("operation_id", filter=Q(consumed=True)),
    )
    return {budget_id: (held, spent) for budget_id, held, spent in counted.order_by()}


def open_budgets(tenant_id: UUID) -> list[Budget]:
    """The organisation's open budgets, with the names of their tools and agents."""
    rows = Budget.objects.filter(tenant_id=tenant_id, closed_at=None).select_related("tool", "agent")
    return list(rows.order_by("currency", "tool__name", "agent__name", "span", "pk"))


def limits_of(tenant_id: UUID) -> dict[int | None, list[str]]:
    """{tool id, or None for every tool: its limits in words}."""
    limits: defaultdict[int | None, list[str]] = defaultdict(list)
    for each in open_budgets(tenant_id):
        by = f" by {each.agent.name}" if each.agent else ""
        together = "" if each.tool_id else " for all tools"
        limits[each.tool_id].append(
            f"{format_money(each.limit_minor, each.currency)} {_SPANS[each.span][0]}{by}{together}"
        )
    return dict(limits)


def of_case(case: Case) -> list[Shown]:
    """The budgets that would count the case's action, with what of it they have room for."""
    proposal = case.proposal
    if proposal.currency is None or proposal.amount_minor is None:
        return []
    rows = counting(
        open_budgets(case.tenant_id), tool_id=case.tool_id, agent_id=case.agent_id, currency=proposal.currency
    )
    return shown(rows, now=clock.now(), asked=proposal.amount_minor)


def counting(
    rows: Iterable[Budget], *, tool_id: int, agent_id: int | None, currency: str | None
) -> list[Budget]:
    """Those of the budgets that count such an action's money."""
    return [
        each
        for each in rows
        if each.currency == currency and each.tool_id in (None, tool_id) and each.agent_id in (None, agent_id)
    ]


def without_room(tenant_id: UUID, operations: Sequence[Operation]) -> dict[int, Shown]:
    """{operation: the first budget that has no room for its money now}."""
    opened = open_budgets(tenant_id) if any(each.order.currency for each in operations) else []
    if not opened:
        return {}
    state = {each.budget.pk: each for each in shown(opened, now=clock.now())}
    short = {}
    for each in operations:
        order = each.order
        its = counting(opened, tool_id=each.tool_id, agent_id=order.agent_id, currency=order.currency)
        full = next((state[one.pk] for one in its if state[one.pk].room < (order.amount_minor or 0)), None)
        if full is not None:
            short[order.pk] = full
    return short


# The page.


@page
def page_of_budgets(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """Open budgets with their meters, and those that were closed."""
    return _answer(request, visitor)


def _answer(request: HttpRequest, visitor: Visitor, form: Form | None = None) -> HttpResponse:
    closed = (
        Budget.objects.filter(tenant_id=visitor.tenant_id, closed_at__isnull=False)
        .select_related("tool", "agent")
        .order_by("-closed_at")[:_MOST_CLOSED]
    )
    query = Query.read(reverse("budgets"), request.GET, "panel")
    context = {
        "open": shown(open_budgets(visitor.tenant_id), now=clock.now(), counted=True),
        "closed": [
            (each, source_in_words(each.budget.closed_by or "")) for each in shown(closed, now=clock.now())
        ],
        "may": budgets.may(visitor.actor),
        "panel": form.panel if form else query["panel"],
        "form": form,
        "tools": list(Tool.objects.filter(tenant_id=visitor.tenant_id).order_by("name")),
        "agents": list(Agent.objects.filter(tenant_id=visitor.tenant_id).order_by("name")),
        "spans": [(value, words[2]) for value, words in _SPANS.items()],
        "empty": {
            "title": "No budget is open" if closed else "No budget yet",
            "words": "Without one, only the limit of each action and the reviewers bound what is moved.",
        },
    }
    return render(request, "approvals/budgets.html", context, status=422 if form else 200)


@act
def make(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """Opens a budget."""
    form = Form.read(request, "tool", "agent", "span", "currency", "limit", panel="make")
    limit = _limit(form)
    if form.errors or limit is None:
        return _answer(request, visitor, form)
    try:
        made = budgets.make(
            actor=visitor.actor,
            span=BudgetSpan(form["span"]),
            currency=form["currency"].upper(),
            limit_minor=limit,
            tool=form["tool"],
            agent=form["agent"],
        )
    except Refusal as refusal:
        return answer_refusal(request, refusal, back=_BACK)
    money = format_money(made.limit_minor, made.currency)
    messages.success(
        request, f"The budget of {money} {_SPANS[made.span][0]} is open. Claims from now on count."
    )
    return see_other(reverse("budgets"))


def _limit(form: Form) -> int | None:
    """The limit in minor units; what is wrong with the form is noted in it."""
    if form["span"] not in BudgetSpan.values:
        form.errors["span"] = "Choose how often it begins anew. Nothing was recorded."
    try:
        currency = form["currency"].upper()
        digits(currency)
    except UnknownCurrency as unknown:
        form.errors["currency"] = f"{unknown} Nothing was recorded."
        return None
    return _amount(form, currency)


def _amount(form: Form, currency: str) -> int | None:
    try:
        limit = parse_amount(form["limit"], currency)
    except MalformedAmount as malformed:
        form.errors["limit"] = f"{malformed} Nothing was recorded."
        return None
    if limit > _LARGEST:
        form.errors["limit"] = "This is more than can be counted. Nothing was recorded."
    return limit


@act
def replace(request: HttpRequest, visitor: Visitor, budget_id: int) -> HttpResponse:
    """Puts a budget of another limit in this one's place."""
    form = Form.read(request, "limit", panel=f"limit-{budget_id}")
    its = Budget.objects.filter(pk=budget_id, tenant_id=visitor.tenant_id).first()
    limit = _amount(form, its.currency) if its else 0
    if limit is None or (form.errors and budgets.may(visitor.actor)):
        return _answer(request, visitor, form)
    try:
        made = budgets.replace(actor=visitor.actor, budget_id=budget_id, limit_minor=limit)
    except Refusal as refusal:
        return answer_refusal(request, refusal, back=_BACK)
    money = format_money(made.limit_minor, made.currency)
    words = _SPANS[made.span]
    messages.success(request, f"The limit is {money} {words[0]} now. What {words[1]} has counted counts on.")
    return see_other(reverse("budgets"))


@act
def close(request: HttpRequest, visitor: Visitor, budget_id: int) -> HttpResponse:
    """Closes a budget, once somebody has read what that means."""
    if not request.POST.get("sure") and budgets.may(visitor.actor):
        return see_other(f"{reverse('budgets')}?panel=close-{budget_id}#panel-close-{budget_id}")
    try:
        budgets.close(actor=visitor.actor, budget_id=budget_id)
    except Refusal as refusal:
        return answer_refusal(request, refusal, back=_BACK)
    messages.success(request, "The budget is closed: nothing is counted by it from now on. Its counts stay.")
    return see_other(reverse("budgets"))
