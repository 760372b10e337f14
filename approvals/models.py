"""People: what an agent proposes, who decided what about which revision, and under which policy."""

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django_fsm import transition

from accounts.models import Agent, Member, Tenant
from approvals.states import ENDED, OPEN, Act, CaseState, Verdict
from ledger.machines import StateField, one_of
from ledger.models import Operation, Tool, ToolVersion
from ledger.triggers import (
    DeclaredMovesOnly,
    Refuse,
    RefuseEarly,
    changed,
    insert_only,
    insert_only_until_pruned,
    never_deleted,
)


class Policy(models.Model):
    """What it takes to approve a tool's actions. One row a version; the newest counts for new proposals."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    tool = models.ForeignKey(Tool, on_delete=models.PROTECT, related_name="policies")
    version = models.PositiveIntegerField()
    tier = models.PositiveSmallIntegerField(
        help_text="risk, 0 to 3; 2 asks for a reason, 3 for the amount typed as well"
    )
    approvals_required = models.PositiveSmallIntegerField()
    expires_after = models.DurationField(help_text="from proposal to the deadline of its execution")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="one_policy_per_version", fields=["tool", "version"]),
            models.CheckConstraint(name="tier_is_0_to_3", condition=Q(tier__lte=3)),
            models.CheckConstraint(name="somebody_must_approve", condition=Q(approvals_required__gte=1)),
        ]
        triggers: ClassVar = insert_only("policy")

    def __str__(self) -> str:
        return f"{self.tool.name} policy v{self.version}"


class Proposal(models.Model):
    """Immutable content of a case: what would be done, on what grounds, and how that reads.

    ``material`` is the RFC 8785 text of parameters and expectations; the fingerprint is its SHA-256.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    tool_version = models.ForeignKey(ToolVersion, on_delete=models.PROTECT, related_name="+", db_index=False)
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="+", db_index=False)
    material = models.TextField()
    rationale = models.TextField(blank=True, help_text="the agent's words, unverified")
    evidence = models.JSONField(default=list)
    sentence = models.CharField(
        max_length=1000, help_text="what a reviewer reads, rendered from the material"
    )
    amount_minor = models.BigIntegerField(null=True)
    currency = models.CharField(max_length=3, null=True)
    fingerprint = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)
    trace_id = models.CharField(max_length=64, blank=True)
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        triggers: ClassVar = insert_only_until_pruned(
            "proposal",
            emptied={
                "material": '{"expects":{},"parameters":{}}',
                "rationale": "",
                "evidence": [],
                "sentence": "",
            },
            pruned=("approvals_pruning", "proposal_id", "id"),
        )


class Case(models.Model):
    """One business action under decision. Its row holds only what its current revision records."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="cases", db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="cases", db_index=False)
    tool = models.ForeignKey(Tool, on_delete=models.PROTECT, related_name="+", db_index=False)
    reference = models.CharField(max_length=100)
    action = models.CharField(max_length=50)
    target = models.CharField(max_length=200)
    step = models.PositiveIntegerField()
    action_key = models.CharField(max_length=40)
    compensates = models.ForeignKey(
        Operation,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_index=False,
        help_text="the committed operation that this case undoes",
    )
    opened_by = models.ForeignKey(
        Member,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_index=False,
        help_text="the person who opened it in the agent's place, and may not approve it",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    state = StateField(default=CaseState.PENDING, choices=CaseState.choices)
    revision = models.PositiveIntegerField(default=1)
    proposal = models.ForeignKey(Proposal, on_delete=models.PROTECT, related_name="+", db_index=False)
    is_open = models.GeneratedField(
        expression=Q(state__in=OPEN),  # type: ignore[arg-type]  # the stubs know no Q here; Django does
        output_field=models.BooleanField(),
        db_persist=True,
    )  # indexed in place of the state, so that a claim and a recording rewrite no index entry

    is_dead = models.GeneratedField(
        expression=Q(state__in=ENDED),  # type: ignore[arg-type]
        output_field=models.BooleanField(),
        db_persist=True,
    )

    class Meta:
        constraints = [
            one_of("case_state_is_known", "state", CaseState),
            models.UniqueConstraint(name="one_case_per_action", fields=["tenant", "action_key"]),
            models.UniqueConstraint(
                name="one_live_compensation_per_effect",
                fields=["compensates"],
                condition=Q(is_dead=False),
            ),
            models.CheckConstraint(name="steps_count_from_one", condition=Q(step__gte=1)),
        ]
        indexes = [
            models.Index(name="cases_open", fields=["tenant", "id"], condition=Q(is_open=True)),
            models.Index(name="cases_of_a_reference", fields=["tenant", "reference"]),
            models.Index(name="cases_of_a_tenant", fields=["tenant", "id"]),
        ]
        triggers: ClassVar = [
            *never_deleted("case"),
            DeclaredMovesOnly(name="case_moves_only_as_declared"),
            Refuse(
                name="case_revision_rises_by_one",
                operation=pgtrigger.Update,
                condition=pgtrigger.Condition("NEW.revision <> OLD.revision + 1"),
            ),
            Refuse(
                name="case_identity_is_fixed",
                operation=pgtrigger.Update,
                condition=changed(
                    "id",
                    "tenant_id",
                    "agent_id",
                    "tool_id",
                    "reference",
                    "action",
                    "target",
                    "step",
                    "action_key",
                    "compensates_id",
                    "opened_by_id",
                ),
            ),
            Refuse(
                name="case_begins_pending_at_one",
                operation=pgtrigger.Insert,
                condition=pgtrigger.Condition("NOT (NEW.state = 'pending' AND NEW.revision = 1)"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reference} {self.action} {self.target} step {self.step}"

    # The moves. `cases.record_revision` writes one; `queries.sql` writes those of the claim and the recording in sets.
    # The trigger above is generated from these declarations and holds for both.

    @transition(field=state, source=[CaseState.PENDING, CaseState.RETURNED], target=CaseState.PENDING)
    def revise(self) -> None:
        """The agent sends new content."""

    @transition(
        field=state,
        source=[CaseState.FAILED, CaseState.EXPIRED, CaseState.WITHDRAWN],
        target=CaseState.PENDING,
    )
    def propose_again(self) -> None:
        """The agent asks once more after nothing came of it."""

    @transition(field=state, source=CaseState.PENDING, target=CaseState.APPROVED)
    def approve(self) -> None:
        """The last approval the policy asks for is in."""

    @transition(field=state, source=CaseState.PENDING, target=CaseState.RETURNED)
    def request_changes(self) -> None:
        """A reviewer wants it put differently."""

    @transition(field=state, source=CaseState.PENDING, target=CaseState.HELD)
    def hold(self) -> None:
        """A reviewer stops the clock of attention, not the deadline."""

    @transition(field=state, source=CaseState.HELD, target=CaseState.PENDING)
    def release(self) -> None:
        """A reviewer puts it back into the queue."""

    @transition(field=state, source=list(OPEN), target=CaseState.REJECTED)
    def reject(self) -> None:
        """One rejection decides."""

    @transition(field=state, source=CaseState.REJECTED, target=CaseState.PENDING)
    def reopen(self) -> None:
        """A reviewer takes a rejection back."""

    @transition(field=state, source=[*OPEN, CaseState.APPROVED, CaseState.FAILED], target=CaseState.WITHDRAWN)
    def withdraw(self) -> None:
        """It is no longer wanted; never after the claim."""

    @transition(field=state, source=[*OPEN, CaseState.APPROVED, CaseState.FAILED], target=CaseState.EXPIRED)
    def expire(self) -> None:
        """The clock ran out; silence is not consent."""

    @transition(field=state, source=CaseState.APPROVED, target=CaseState.PENDING)
    def revoke(self) -> None:
        """The approval no longer stands, and the claim had not been made."""

    @transition(field=state, source=CaseState.APPROVED, target=CaseState.EXECUTING)
    def claim(self) -> None:
        """A worker takes it on."""

    @transition(
        field=state,
        source=[CaseState.APPROVED, CaseState.EXECUTING, CaseState.UNKNOWN],
        target=CaseState.FAILED,
    )
    def fail(self) -> None:
        """It is proven that it did not happen."""

    @transition(field=state, source=CaseState.EXECUTING, target=CaseState.UNKNOWN)
    def lose_sight(self) -> None:
        """It may have happened."""

    @transition(field=state, source=[CaseState.EXECUTING, CaseState.UNKNOWN], target=CaseState.EXECUTED)
    def execute(self) -> None:
        """It happened."""

    @transition(
        field=state,
        source=[
            state
            for state in CaseState
            if state not in (CaseState.EXECUTING, CaseState.UNKNOWN, CaseState.EXECUTED)
        ],
        target=CaseState.EXECUTED,
    )
    def correct(self) -> None:
        """The sink's own record shows an effect that was taken for absent."""


class Revision(models.Model):
    """One write to a case: the state it left, whose act it was, and why. Its number is the case's ETag."""

    pk = models.CompositePrimaryKey("case_id", "number")
    # Copied from the case's own row, which has both: foreign keys would lock case and proposal once more.
    case = models.ForeignKey(
        Case, on_delete=models.PROTECT, related_name="revisions", db_index=False, db_constraint=False
    )
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=20, choices=CaseState.choices)
    act = models.CharField(max_length=20, choices=Act.choices)
    proposal = models.ForeignKey(
        Proposal, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    actor_kind = models.CharField(max_length=10)
    actor_id = models.BigIntegerField()
    actor_name = models.CharField(max_length=100)
    reason_code = models.CharField(max_length=50, blank=True, db_default="")
    reason = models.TextField(blank=True, db_default="")
    at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            one_of("revision_state_is_known", "state", CaseState),
            one_of("revision_act_is_known", "act", Act),
        ]
        triggers: ClassVar = insert_only_until_pruned(
            "revision", emptied={"reason": ""}, pruned=("approvals_pruning", "case_id", "case_id")
        )


class Vote(models.Model):
    """A reviewer's recorded word on one revision and the digest of what the page showed."""

    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="votes", db_index=False)
    revision = models.PositiveIntegerField()
    reviewer = models.ForeignKey(Member, on_delete=models.PROTECT, related_name="+", db_index=False)
    verdict = models.CharField(max_length=20, choices=Verdict.choices)
    digest = models.CharField(max_length=64)
    reason_code = models.CharField(max_length=50, blank=True)
    reason = models.TextField(blank=True)
    at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [one_of("vote_verdict_is_known", "verdict", Verdict)]
        indexes = [
            models.Index(name="votes_on_a_revision", fields=["case", "revision"]),
            models.Index(name="votes_of_a_reviewer", fields=["reviewer", "at"]),
        ]
        triggers: ClassVar = insert_only_until_pruned(
            "vote", emptied={"reason": ""}, pruned=("approvals_pruning", "case_id", "case_id")
        )


class Pruning(models.Model):
    """That a proposal of a case has been emptied, with its case's reasons: by whom, when and why. Never taken back.

    Refused unless the case has ended, the ledger has let go of it, and its horizon is over (an erasure: asked for).
    """

    proposal = models.OneToOneField(
        Proposal, on_delete=models.PROTECT, primary_key=True, related_name="pruning"
    )
    case = models.ForeignKey(Case, on_delete=models.PROTECT, related_name="prunings")
    by = models.CharField(max_length=120, help_text="person:…, or retention")
    because = models.CharField(max_length=300)
    is_erasure = models.BooleanField(default=False)
    at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        triggers: ClassVar = [
            *insert_only("pruning"),
            RefuseEarly(
                name="cases_are_pruned_only_once_they_have_ended", function="refuse_early_case_pruning"
            ),
        ]
