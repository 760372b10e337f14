"""What was approved to happen, and each attempt at it."""

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django_fsm import transition

from accounts.models import Agent, Tenant
from ledger.machines import StateField, one_of
from ledger.models.tools import Tool, ToolVersion
from ledger.states import SETTLED, UNRESOLVED, AttemptOutcome, OperationState
from ledger.triggers import (
    DeclaredMovesOnly,
    Refuse,
    UnlessPruned,
    changed,
    insert_only_until_pruned,
    never_deleted,
)


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
        db_constraint=False,  # written by the grant alone, from the operation it has locked
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
    agent = models.ForeignKey(
        Agent,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_index=False,
        help_text="who proposed it; its budgets are charged",
    )
    compensates = models.ForeignKey(
        "Operation",
        on_delete=models.PROTECT,
        null=True,
        related_name="compensations",
        db_index=False,
        help_text="the committed operation that this one undoes",
    )
    body = models.TextField(help_text="canonical JSON; the same bytes with every attempt")
    amount_minor = models.BigIntegerField(null=True)
    currency = models.CharField(max_length=3, null=True)
    expected_version = models.BigIntegerField(
        null=True, help_text="the resource version the decision was based on"
    )
    sink_version = models.CharField(
        max_length=200, null=True, help_text="the sink's own version the decision was based on; opaque"
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
        indexes = [
            models.Index(name="orders_of_a_tenant", fields=["tenant", "id"]),
            models.Index(
                name="compensations_of_an_operation",
                fields=["compensates"],
                condition=Q(compensates__isnull=False),
            ),
        ]
        triggers: ClassVar = insert_only_until_pruned(
            "order", emptied={"body": "{}"}, pruned=("ledger_pruning", "operation_id", "id")
        )


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
                fields=["resource", "due_at", "order"],
                condition=Q(state=OperationState.NOT_STARTED),
            ),
            models.Index(
                name="operations_settled",
                fields=["tool", "settled_at"],
                condition=Q(settled_at__isnull=False),
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
    # Written by the grant alone, from the operation it has locked: a foreign key would lock it once more.
    operation = models.ForeignKey(
        Operation, on_delete=models.PROTECT, related_name="attempts", db_index=False, db_constraint=False
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
            UnlessPruned(
                name="attempts_close_once",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__ended_at__isnull=False),
                emptied={"receipt": "{}", "note": None},
                pruned=("ledger_pruning", "operation_id", "operation_id"),
            ),
        ]
