"""What speaks for and against an outcome: late reports, people's words, disagreements, events that sinks send."""

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from accounts.models import Member, Tenant
from ledger.machines import one_of
from ledger.models.operations import Operation
from ledger.models.tools import Tool
from ledger.states import AttemptOutcome, AttestedOutcome, FindingKind
from ledger.triggers import UnlessPruned, changed, insert_only_until_pruned, never_deleted


class Evidence(models.Model):
    """What a worker reported after it had lost its grant. Kept, shown, and a reason to look again; never an outcome."""

    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="evidence")
    token = models.BigIntegerField(help_text="the grant it had lost")
    worker = models.CharField(max_length=100)
    outcome = models.CharField(max_length=20, choices=AttemptOutcome.choices)
    reference = models.CharField(max_length=255, null=True)
    receipt = models.TextField(null=True)
    note = models.CharField(max_length=500, null=True)
    recorded_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [one_of("evidence_outcome_is_known", "outcome", AttemptOutcome)]
        triggers: ClassVar = insert_only_until_pruned(
            "evidence",
            emptied={"receipt": None, "note": None},
            pruned=("ledger_pruning", "operation_id", "operation_id"),
        )


class Attestation(models.Model):
    """A person's word on an outcome that no sink could tell; where a tool asks for two, the first waits for a second.

    ``tag`` is what its page showed: the word of a second person counts only on the same evidence.
    """

    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, related_name="attestations")
    testimony = models.CharField(max_length=20, choices=AttestedOutcome.choices)
    member = models.ForeignKey(Member, on_delete=models.PROTECT, related_name="+", db_index=False)
    name = models.CharField(max_length=100, help_text="as the pages show the person")
    reference = models.CharField(max_length=255, null=True, help_text="the sink's own name for the effect")
    evidence = models.TextField(help_text="what the word rests on")
    tag = models.CharField(max_length=40, help_text="the operation's tag that the person saw")
    token = models.BigIntegerField(
        null=True, help_text="of the grant the word took; unset: it waits for a second"
    )
    until = models.DateTimeField(null=True, help_text="of a word that says: still unknown, look again then")
    at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [one_of("testimony_is_known", "testimony", AttestedOutcome)]
        triggers: ClassVar = insert_only_until_pruned(
            "attestation",
            emptied={"evidence": ""},
            pruned=("ledger_pruning", "operation_id", "operation_id"),
        )


class Finding(models.Model):
    """A disagreement between ledger and sink. While one about a subject is open, it is neither approved nor claimed."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    subject = models.BigIntegerField(null=True)
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, null=True, related_name="findings")
    kind = models.CharField(max_length=20, choices=FindingKind.choices)
    tool = models.ForeignKey(Tool, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    about = models.CharField(max_length=255, help_text="what it is about; makes finding it twice one finding")
    reference = models.CharField(max_length=255, null=True, help_text="the sink's own name for the effect")
    amount_minor = models.BigIntegerField(null=True, help_text="the money in question")
    currency = models.CharField(max_length=3, null=True)
    detail = models.JSONField(default=dict)
    opened_at = models.DateTimeField(db_default=Now(), editable=False)
    seen_at = models.DateTimeField(db_default=Now(), help_text="when it was last found to be so")
    muted_at = models.DateTimeField(null=True, help_text="nobody is asked about it any more; it stays open")
    closed_at = models.DateTimeField(null=True)
    closed_by = models.CharField(max_length=120, null=True, help_text="person:… or reconciliation")
    closed_because = models.CharField(max_length=500, null=True)

    class Meta:
        constraints = [
            one_of("finding_kind_is_known", "kind", FindingKind),
            models.UniqueConstraint(
                name="one_open_finding_per_matter",
                fields=["tenant", "kind", "about"],
                condition=Q(closed_at__isnull=True),
            ),
            models.CheckConstraint(
                name="closed_iff_closed_by",
                condition=Q(closed_at__isnull=True, closed_by__isnull=True)
                | Q(closed_at__isnull=False, closed_by__isnull=False),
            ),
        ]
        indexes = [
            models.Index(name="findings_open", fields=["subject"], condition=Q(closed_at__isnull=True)),
        ]
        triggers: ClassVar = never_deleted("finding")


class InboundEvent(models.Model):
    """What a provider sent by itself, verified and stored raw before it was answered. Only a reason to look again."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    tool = models.ForeignKey(Tool, on_delete=models.PROTECT, related_name="+", db_index=False)
    event_id = models.CharField(max_length=255)
    kind = models.CharField(max_length=100)
    body = models.TextField(help_text="as it came")
    operation = models.ForeignKey(
        Operation,
        on_delete=models.PROTECT,
        null=True,
        related_name="inbound_events",
        help_text="once matched",
    )
    received_at = models.DateTimeField(db_default=Now(), editable=False)
    matched_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="one_inbound_event_per_tool_and_id", fields=["tool", "event_id"]),
            models.CheckConstraint(
                name="matched_iff_matched_at",
                condition=Q(operation__isnull=True, matched_at__isnull=True)
                | Q(operation__isnull=False, matched_at__isnull=False),
            ),
        ]
        indexes = [
            models.Index(
                name="inbound_events_unmatched", fields=["received_at"], condition=Q(matched_at__isnull=True)
            ),
        ]
        triggers: ClassVar = [
            *never_deleted("inbound_event"),
            UnlessPruned(
                name="inbound_events_are_stored_as_they_came",
                operation=pgtrigger.Update,
                condition=changed("tenant_id", "tool_id", "event_id", "kind", "body", "received_at"),
                emptied={"body": ""},
                pruned=("ledger_pruning", "operation_id", "operation_id"),
            ),
        ]
