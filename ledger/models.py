"""Facts: which tools may act, what was approved to happen, each attempt at it, and what is known of the outcome.

The ledger does not know what a case is: an order carries an opaque ``subject`` and the digest that was approved.
"""

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django_fsm import transition

from accounts.models import Tenant
from ledger.machines import StateField, one_of
from ledger.states import (
    SETTLED,
    UNRESOLVED,
    AttemptOutcome,
    ControlEventKind,
    EnforcementClass,
    FindingKind,
    OperationState,
)
from ledger.triggers import DeclaredMovesOnly, Refuse, changed, insert_only, never_deleted


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
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="one_tool_version_per_number", fields=["tool", "number"]),
            models.CheckConstraint(
                name="provider_key_has_a_window",
                condition=~Q(enforcement=EnforcementClass.PROVIDER_KEY) | Q(key_window__isnull=False),
            ),
            one_of("enforcement_class_is_known", "enforcement", EnforcementClass),
        ]
        triggers: ClassVar = insert_only("tool_version")

    def __str__(self) -> str:
        return f"{self.tool.name} v{self.number}"


class Resource(models.Model):
    """What an action touches. Fences order its owners; ``version`` counts the effects that committed on it."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="resources", db_index=False)
    name = models.CharField(max_length=300)
    version = models.BigIntegerField(default=0)
    token = models.BigIntegerField(default=0, help_text="the highest fencing token granted")
    holder = models.ForeignKey(
        "Operation",
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_index=False,  # so that a grant rewrites no index entry; the operations' own index says "at most one"
        help_text="its unresolved operation",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(name="one_resource_per_name_and_tenant", fields=["tenant", "name"])
        ]
        triggers: ClassVar = [
            *never_deleted("resource"),
            Refuse(
                name="tokens_never_fall",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(new__token__lt=pgtrigger.F("old__token")),
            ),
            Refuse(
                name="resource_versions_never_fall",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(new__version__lt=pgtrigger.F("old__version")),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """One approved intent, frozen when the approval writes it: its identity and the request every attempt sends."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    key = models.CharField(max_length=40, help_text="idempotency key")
    fingerprint = models.CharField(max_length=64)
    digest = models.CharField(max_length=64, help_text="what the reviewer saw")
    subject = models.BigIntegerField(
        db_index=True, help_text="what the approval was about; opaque to the ledger"
    )
    approved_revision = models.PositiveIntegerField()
    tool_version = models.ForeignKey(ToolVersion, on_delete=models.PROTECT, related_name="+", db_index=False)
    body = models.TextField(help_text="canonical JSON; the same bytes with every attempt")
    amount_minor = models.BigIntegerField(null=True)
    currency = models.CharField(max_length=3, null=True)
    expected_version = models.BigIntegerField(
        null=True, help_text="the resource version the decision was based on"
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="one_operation_per_idempotency_key", fields=["key", "tenant"]),
            models.CheckConstraint(
                name="money_has_a_currency",
                condition=Q(amount_minor__isnull=True, currency__isnull=True)
                | Q(amount_minor__isnull=False, currency__isnull=False),
            ),
        ]
        indexes = [models.Index(name="orders_of_a_tenant", fields=["tenant", "id"])]
        triggers: ClassVar = insert_only("order")


class Operation(models.Model):
    """What became of an order: the row that is locked, granted, renewed and settled.

    ``due_at`` says when the next grant may be given: once the order is written while it is not started, at the
    lease's end while a worker holds it, after a back-off while none does.
    """

    order = models.OneToOneField(Order, on_delete=models.PROTECT, primary_key=True, related_name="operation")
    resource = models.ForeignKey(
        Resource, on_delete=models.PROTECT, related_name="operations", db_index=False
    )
    tool = models.ForeignKey(Tool, on_delete=models.PROTECT, related_name="+", db_index=False)
    action_key = models.CharField(max_length=40)
    state = StateField(default=OperationState.NOT_STARTED, choices=OperationState.choices)
    token = models.BigIntegerField(null=True, help_text="of the latest grant")
    worker = models.CharField(max_length=100, null=True, help_text="who holds the grant now")
    due_at = models.DateTimeField(null=True, db_default=Now())
    attempt_count = models.PositiveIntegerField(default=0)
    reference = models.CharField(max_length=255, null=True, help_text="the sink's own name for the effect")
    reason = models.CharField(max_length=100, null=True, help_text="why it did not happen, or is not known")
    settled_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            one_of("operation_state_is_known", "state", OperationState),
            models.UniqueConstraint(
                name="one_live_operation_per_action",
                fields=["action_key"],
                condition=~Q(state=OperationState.FAILED_BEFORE_COMMIT),
            ),
            models.UniqueConstraint(
                name="one_unresolved_operation_per_resource",
                fields=["resource"],
                condition=Q(state__in=UNRESOLVED),
            ),
            models.UniqueConstraint(
                name="one_operation_per_sink_reference",
                fields=["tool", "reference"],
                condition=Q(reference__isnull=False),
            ),
            models.CheckConstraint(
                name="settled_iff_settled_at",
                condition=Q(state__in=SETTLED, settled_at__isnull=False, due_at__isnull=True)
                | (~Q(state__in=SETTLED) & Q(settled_at__isnull=True, due_at__isnull=False)),
            ),
            models.CheckConstraint(
                name="committed_iff_reference",
                condition=Q(state=OperationState.COMMITTED, reference__isnull=False)
                | (~Q(state=OperationState.COMMITTED) & Q(reference__isnull=True)),
            ),
            models.CheckConstraint(
                name="failed_with_a_reason",
                condition=~Q(state=OperationState.FAILED_BEFORE_COMMIT) | Q(reason__isnull=False),
            ),
            models.CheckConstraint(
                name="held_only_while_unresolved", condition=Q(worker__isnull=True) | Q(state__in=UNRESOLVED)
            ),
            models.CheckConstraint(
                name="unresolved_has_a_token", condition=~Q(state__in=UNRESOLVED) | Q(token__isnull=False)
            ),
        ]
        indexes = [
            models.Index(
                name="operations_due",
                fields=["resource", "due_at"],
                condition=Q(state=OperationState.NOT_STARTED),
            ),
        ]
        triggers: ClassVar = [
            *never_deleted("operation"),
            DeclaredMovesOnly(name="operation_moves_only_as_declared"),
            Refuse(
                name="operation_identity_is_fixed",
                operation=pgtrigger.Update,
                condition=changed("order_id", "resource_id", "tool_id", "action_key"),
            ),
            Refuse(
                name="operation_begins_not_started",
                operation=pgtrigger.Insert,
                condition=~pgtrigger.Q(new__state=OperationState.NOT_STARTED),
            ),
            Refuse(
                name="operation_tokens_never_fall",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(new__token__lt=pgtrigger.F("old__token")),
            ),
        ]

    # The moves. The statements that make them for whole batches stand in queries.sql; the trigger above is
    # generated from these declarations and holds for both.

    @transition(field=state, source=OperationState.NOT_STARTED, target=OperationState.NOT_STARTED)
    def wait(self) -> None:
        """A check of the claim says: not yet."""

    @transition(field=state, source=OperationState.NOT_STARTED, target=OperationState.STARTED)
    def start(self) -> None:
        """The claim grants it to a worker."""

    @transition(field=state, source=OperationState.NOT_STARTED, target=OperationState.FAILED_BEFORE_COMMIT)
    def end_unstarted(self) -> None:
        """What was approved is no longer to happen, and nothing was sent."""

    @transition(field=state, source=OperationState.STARTED, target=OperationState.STARTED)
    def grant_again(self) -> None:
        """Renewed, given back unsent, or granted to a successor."""

    @transition(field=state, source=OperationState.STARTED, target=OperationState.OUTCOME_UNKNOWN)
    def lose_sight(self) -> None:
        """It may have been sent, and nobody can say what came of it."""

    @transition(field=state, source=OperationState.OUTCOME_UNKNOWN, target=OperationState.OUTCOME_UNKNOWN)
    def look_again(self) -> None:
        """Granted for a look-up or a repeat with the same key; still unknown."""

    @transition(field=state, source=list(UNRESOLVED), target=OperationState.COMMITTED)
    def commit(self) -> None:
        """The sink's receipt says that it happened."""

    @transition(field=state, source=list(UNRESOLVED), target=OperationState.FAILED_BEFORE_COMMIT)
    def fail(self) -> None:
        """It is proven that it did not happen."""

    @transition(field=state, source=OperationState.FAILED_BEFORE_COMMIT, target=OperationState.COMMITTED)
    def correct(self) -> None:
        """The sink's own record under this key shows an effect after all."""


class Attempt(models.Model):
    """One grant: one fencing token, one worker, at most one send. Written at the grant, closed once."""

    pk = models.CompositePrimaryKey("operation_id", "number")
    operation = models.ForeignKey(
        Operation, on_delete=models.PROTECT, related_name="attempts", db_index=False
    )
    number = models.PositiveIntegerField()
    token = models.BigIntegerField()
    worker = models.CharField(max_length=100)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=20, choices=AttemptOutcome.choices, null=True)
    sent = models.BooleanField(null=True, help_text="unset: its worker never said")
    lookups = models.PositiveSmallIntegerField(default=0)
    answer_stored = models.BooleanField(
        default=False, db_default=False, help_text="the sink keeps this answer under the key, and repeats it"
    )
    receipt = models.TextField(null=True, help_text="what the sink answered, canonical JSON")
    note = models.CharField(
        max_length=500, null=True, help_text="what was learned, in words, where no receipt says it"
    )

    class Meta:
        constraints = [
            one_of("attempt_outcome_is_known", "outcome", AttemptOutcome),
            models.CheckConstraint(
                name="ended_iff_outcome",
                condition=Q(ended_at__isnull=True, outcome__isnull=True)
                | Q(ended_at__isnull=False, outcome__isnull=False),
            ),
            models.CheckConstraint(
                name="committed_with_a_receipt",
                condition=~Q(outcome=AttemptOutcome.COMMITTED) | Q(receipt__isnull=False),
            ),
        ]
        triggers: ClassVar = [
            *never_deleted("attempt"),
            Refuse(
                name="attempts_close_once",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__ended_at__isnull=False),
            ),
        ]


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
        triggers: ClassVar = insert_only("evidence")


class Finding(models.Model):
    """A disagreement between ledger and sink. While one about a subject is open, it is neither approved nor claimed."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    subject = models.BigIntegerField(null=True)
    operation = models.ForeignKey(Operation, on_delete=models.PROTECT, null=True, related_name="findings")
    kind = models.CharField(max_length=20, choices=FindingKind.choices)
    about = models.CharField(max_length=255, help_text="what it is about; makes finding it twice one finding")
    detail = models.JSONField(default=dict)
    opened_at = models.DateTimeField(db_default=Now(), editable=False)
    closed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            one_of("finding_kind_is_known", "kind", FindingKind),
            models.UniqueConstraint(
                name="one_open_finding_per_matter",
                fields=["tenant", "kind", "about"],
                condition=Q(closed_at__isnull=True),
            ),
        ]
        indexes = [
            models.Index(name="findings_open", fields=["subject"], condition=Q(closed_at__isnull=True)),
        ]
        triggers: ClassVar = never_deleted("finding")


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
