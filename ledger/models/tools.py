"""Write tools, what was observed of their sinks, and when they are to stand still."""

from datetime import timedelta
from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from accounts.models import Tenant
from ledger.machines import one_of
from ledger.states import EnforcementClass
from ledger.triggers import Refuse, changed, insert_only, never_deleted


class Tool(models.Model):
    """A kind of action a tenant allows; a proposal's ``action`` is its name. What it does stands in its versions."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="tools")
    name = models.CharField(max_length=50)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="one_tool_per_name_and_tenant", fields=["tenant", "name"])
        ]
        triggers: ClassVar = never_deleted("tool")

    def __str__(self) -> str:
        return self.name


class ToolVersion(models.Model):
    """What a tool accepts, how its effect reads to a reviewer, and how its sink keeps it from happening twice.

    Templates name members of ``parameters`` and the facts in braces, e.g. ``Refund {amount} on {payment}``;
    ``{amount}`` is the money of ``amount_field`` and ``currency_field``, formatted.
    """

    tool = models.ForeignKey(Tool, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    title = models.CharField(max_length=100)
    schema = models.JSONField(help_text="JSON Schema 2020-12 of the parameters")
    sentence = models.CharField(max_length=300)
    resource = models.CharField(max_length=200, default="{target}")
    enforcement = models.CharField(max_length=20, choices=EnforcementClass.choices)
    connector = models.CharField(max_length=50)
    sink = models.CharField(max_length=200, help_text="which system owns the effect, e.g. stripe")
    order = models.JSONField(help_text="template of the request to the sink")
    amount_field = models.CharField(max_length=50, blank=True)
    currency_field = models.CharField(max_length=50, blank=True)
    value_limits = models.JSONField(
        default=dict, help_text="most per action, {currency: minor units}; empty: none"
    )
    key_window = models.DurationField(null=True, help_text="how long the sink documents that it keeps a key")
    sink_settings = models.JSONField(
        default=dict, help_text="how the connector reaches the sink: addresses, names; never a secret"
    )
    settle_time = models.DurationField(
        default=timedelta(seconds=60), help_text="how long the sink's own records may lag behind its effects"
    )
    objective = models.DurationField(
        default=timedelta(minutes=15), help_text="how soon an unknown outcome is to be settled"
    )
    retry_horizon = models.DurationField(
        default=timedelta(days=30),
        help_text="how late a retry of the same action may come; then failed expires",
    )
    retention = models.DurationField(
        default=timedelta(days=400), help_text="how long content is kept once settled; keys are kept for ever"
    )
    dispatch_delay = models.DurationField(
        default=timedelta(0), help_text="between approval and the earliest claim: time to take it back"
    )
    calls_in_flight = models.PositiveSmallIntegerField(default=16, help_text="most at once in one worker")
    second_person = models.BooleanField(
        default=False, help_text="whether a word on an unknown outcome needs a second person"
    )
    probe_target = models.JSONField(null=True, help_text="facts and parameters that a probe may use up")
    compensation = models.JSONField(
        null=True, help_text="{action, target, parameters}: the templates of the case that undoes an effect"
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="one_tool_version_per_number", fields=["tool", "number"]),
            models.CheckConstraint(
                name="provider_key_has_a_window",
                condition=~Q(enforcement=EnforcementClass.PROVIDER_KEY) | Q(key_window__isnull=False),
            ),
            one_of("enforcement_class_is_known", "enforcement", EnforcementClass),
            models.CheckConstraint(
                name="no_enforcement_has_a_value_limit",
                condition=~Q(enforcement=EnforcementClass.NONE) | ~Q(value_limits={}) | Q(amount_field=""),
            ),
            models.CheckConstraint(
                name="identity_outlives_the_key_window",
                condition=Q(key_window__isnull=True) | Q(retry_horizon__gte=F("key_window")),
            ),
            models.CheckConstraint(
                name="retention_outlives_the_retry_horizon", condition=Q(retention__gte=F("retry_horizon"))
            ),
            models.CheckConstraint(name="calls_in_flight_is_positive", condition=Q(calls_in_flight__gte=1)),
        ]
        triggers: ClassVar = insert_only("tool_version")

    def __str__(self) -> str:
        return f"{self.tool.name} v{self.number}"


class Probe(models.Model):
    """What a probe saw a tool's sink do with test credentials: the guarantee that is shown is the one observed."""

    tool_version = models.ForeignKey(ToolVersion, on_delete=models.PROTECT, related_name="probes")
    sink = models.CharField(max_length=200, help_text="where it was tried, without credentials")
    passed = models.BooleanField(help_text="whether every claim of the enforcement class was seen to hold")
    observations = models.JSONField(help_text="[{claim, holds, seen}], in the order they were tried")
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        triggers: ClassVar = insert_only("probe")


class Halt(models.Model):
    """A time in which nothing is sent: of a whole tenant, or of one tool (a pause). Deadlines are extended by it.

    ``ends_at`` is empty while only a person can end it; a breaker's pause knows its end when it begins.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="halts", db_index=False)
    tool = models.ForeignKey(
        Tool,
        on_delete=models.PROTECT,
        null=True,
        related_name="halts",
        db_index=False,
        help_text="unset: every tool of the tenant",
    )
    reason = models.CharField(max_length=300)
    began_at = models.DateTimeField(db_default=Now(), editable=False)
    began_by = models.CharField(max_length=120, help_text="who: person:…, breaker, restore")
    ends_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=120, null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="one_open_halt_per_tenant_and_tool",
                fields=["tenant", "tool"],
                condition=Q(ends_at__isnull=True),
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                name="halts_end_after_they_begin",
                condition=Q(ends_at__isnull=True) | Q(ends_at__gte=F("began_at")),
            ),
        ]
        indexes = [models.Index(name="halts_of_a_tenant", fields=["tenant", "-began_at"])]
        triggers: ClassVar = [
            *never_deleted("halt"),
            Refuse(
                name="halt_begin_is_fixed",
                operation=pgtrigger.Update,
                condition=changed("tenant_id", "tool_id", "reason", "began_at", "began_by"),
            ),
        ]
