"""What the controls did, and when each of the regular looks was last made."""

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models.functions import Now

from accounts.models import Tenant
from ledger.machines import one_of
from ledger.models.operations import Operation
from ledger.models.tools import Tool
from ledger.states import ControlEventKind
from ledger.triggers import Refuse, insert_only, never_deleted


class ControlEvent(models.Model):
    """One thing the controls did: a replay answered, a conflict or an old worker's write refused."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    kind = models.CharField(max_length=30, choices=ControlEventKind.choices)
    source = models.CharField(max_length=120, help_text="who tried: agent:…, person:…, worker:…, queue")
    action = models.CharField(max_length=50)
    subject = models.BigIntegerField(null=True)
    key = models.CharField(max_length=40, null=True)
    detail = models.JSONField(default=dict)
    at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [one_of("control_event_kind_is_known", "kind", ControlEventKind)]
        indexes = [
            models.Index(name="control_events_by_time", fields=["tenant", "-at"]),
            models.Index(name="control_events_by_subject", fields=["subject"]),
        ]
        triggers: ClassVar = insert_only("control_event")


class Sweep(models.Model):
    """The last run of a regular look, whoever made it. A sweep that is late is an alarm."""

    name = models.CharField(max_length=30, primary_key=True)
    ran_at = models.DateTimeField(db_default=Now())
    found = models.PositiveIntegerField(default=0, help_text="how much it had to do")


class Sighting(models.Model):
    """That a pass has seen a committed operation's effect at the sink. Taken away when the pass ends."""

    pk = models.CompositePrimaryKey("reconciliation_id", "operation_id")
    reconciliation = models.ForeignKey(
        "Reconciliation", on_delete=models.CASCADE, related_name="sightings", db_index=False
    )
    operation = models.ForeignKey(
        Operation, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )


class Reconciliation(models.Model):
    """One pass over a tool's sink and ledger. What it found are findings; this row says what it looked at.

    ``cursor`` is where a pass that was cut short goes on: ``>`` and the sink's own after the last page that was
    compared; ``#`` and the last committed operation that was looked at, once the sink's listing is through.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    tool = models.ForeignKey(Tool, on_delete=models.PROTECT, related_name="reconciliations")
    since = models.DateTimeField(help_text="effects from here")
    until = models.DateTimeField(help_text="to here: what is younger may not be listed yet")
    cursor = models.CharField(max_length=500, blank=True, db_default="")
    effects = models.PositiveIntegerField(default=0, help_text="seen at the sink")
    operations = models.PositiveIntegerField(default=0, help_text="committed in the ledger")
    opened = models.PositiveIntegerField(default=0)
    closed = models.PositiveIntegerField(default=0)
    began_at = models.DateTimeField(db_default=Now(), editable=False)
    ended_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=500, blank=True, db_default="")

    class Meta:
        triggers: ClassVar = [
            *never_deleted("reconciliation"),
            Refuse(
                name="reconciliations_end_once",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__ended_at__isnull=False),
            ),
        ]
