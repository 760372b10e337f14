"""What may be moved in a time: budgets, what is reserved and consumed of them, and by which operation."""

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from accounts.models import Agent, Tenant
from ledger.machines import one_of
from ledger.models.operations import Operation
from ledger.models.tools import Tool
from ledger.states import BudgetSpan
from ledger.triggers import Refuse, changed, never_deleted


class Budget(models.Model):
    """The most that may be moved in each day, week or month (UTC), of one currency; by one tool or agent, or by all.

    Never changed: another limit is another budget, and this one is closed.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="budgets", db_index=False)
    tool = models.ForeignKey(
        Tool, on_delete=models.PROTECT, null=True, related_name="+", db_index=False, help_text="unset: all"
    )
    agent = models.ForeignKey(
        Agent, on_delete=models.PROTECT, null=True, related_name="+", db_index=False, help_text="unset: all"
    )
    span = models.CharField(max_length=10, choices=BudgetSpan.choices)
    currency = models.CharField(max_length=3)
    limit_minor = models.BigIntegerField()
    made_at = models.DateTimeField(db_default=Now(), editable=False)
    made_by = models.CharField(max_length=120)
    closed_at = models.DateTimeField(null=True)
    closed_by = models.CharField(max_length=120, null=True)

    class Meta:
        constraints = [
            one_of("budget_span_is_known", "span", BudgetSpan),
            models.CheckConstraint(name="budgets_are_not_negative", condition=Q(limit_minor__gte=0)),
            models.UniqueConstraint(
                name="one_open_budget_per_scope",
                fields=["tenant", "currency", "span", "tool", "agent"],
                condition=Q(closed_at__isnull=True),
                nulls_distinct=False,
            ),
        ]
        triggers: ClassVar = [
            *never_deleted("budget"),
            Refuse(
                name="budget_terms_are_fixed",
                operation=pgtrigger.Update,
                condition=changed("tenant_id", "tool_id", "agent_id", "span", "currency", "limit_minor"),
            ),
        ]


class BudgetPeriod(models.Model):
    """What one day, week or month of a budget has seen: ``reserved`` may still happen, ``consumed`` did."""

    budget = models.ForeignKey(Budget, on_delete=models.PROTECT, related_name="periods", db_index=False)
    begins_on = models.DateField(help_text="UTC")
    reserved_minor = models.BigIntegerField(default=0)
    consumed_minor = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="one_period_per_budget_and_begin", fields=["budget", "begins_on"]),
            models.CheckConstraint(
                name="budget_counts_are_not_negative",
                condition=Q(reserved_minor__gte=0, consumed_minor__gte=0),
            ),
        ]
        triggers: ClassVar = never_deleted("budget_period")


class Reservation(models.Model):
    """An operation's share of one budget's period, from its claim to its final outcome.

    ``consumed`` is unset while the outcome is open, then whether it happened.
    """

    pk = models.CompositePrimaryKey("operation_id", "period_id")
    operation = models.ForeignKey(
        Operation, on_delete=models.PROTECT, related_name="reservations", db_index=False
    )
    period = models.ForeignKey(BudgetPeriod, on_delete=models.PROTECT, related_name="reservations")
    amount_minor = models.BigIntegerField()
    consumed = models.BooleanField(null=True)
    made_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(name="reservations_are_not_negative", condition=Q(amount_minor__gte=0)),
        ]
        triggers: ClassVar = [
            *never_deleted("reservation"),
            Refuse(
                name="reservation_terms_are_fixed",
                operation=pgtrigger.Update,
                condition=changed("operation_id", "period_id", "amount_minor"),
            ),
        ]
