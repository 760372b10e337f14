"""A small organisation to act in, and the few steps that bring a case where a test begins.

Everything goes through the product's own functions: what stands here is only which people say which words.
"""

from collections import defaultdict, namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import psycopg
import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.db import connection
from django.db.models.functions import Now
from django.test import override_settings

from accounts.actors import Actor, agent_actor, person_actor
from accounts.models import Agent, Member, Role, Tenant, User
from approvals import cases, decisions, proposals
from approvals.decisions import Decided, Word
from approvals.models import Case, Proposal
from approvals.proposals import Content
from approvals.states import CaseState, Verdict
from approvals.tags import Tag, tag_of
from config.demo import seed
from config.demo.seed import Organisation
from ledger import findings
from ledger.claims import Grant
from ledger.models import Attempt, ControlEvent, Operation, Resource, Tool, ToolVersion
from ledger.outcomes import Report
from ledger.states import UNRESOLVED, AttemptOutcome, ControlEventKind, FindingKind, OperationState
from workers import claims, outcomes

LEASE = 30.0
"""Seconds; longer than any test. A test that wants a lapsed lease claims with ``LAPSED``."""
LAPSED = 0.0
WORKER = "worker-a"

_labels = count(1)


class QuickPasswords(PBKDF2PasswordHasher):
    """Django's own form of a password, with one round: nobody attacks a test."""

    iterations = 1


@dataclass(frozen=True, slots=True)
class World:
    """One organisation. Its actors are read anew each time, as a request does: roles may have changed."""

    organisation: Organisation

    @property
    def tenant(self) -> Tenant:
        """The organisation itself."""
        return self.organisation.tenant

    @property
    def agent(self) -> Actor:
        """The refund agent; ``admin`` stands behind it."""
        return agent_actor(Agent.objects.get(pk=self.organisation.agent.pk))

    @property
    def reviewer(self) -> Actor:
        """Whoever the test lets decide first."""
        return self.person("reviewer")

    @property
    def second_reviewer(self) -> Actor:
        """Another reviewer."""
        return self.person("second_reviewer")

    @property
    def operator(self) -> Actor:
        """A member who may not decide."""
        return self.person("operator")

    def person(self, handle: str) -> Actor:
        """The member of this handle, with the roles held now."""
        return person_actor(self.member(handle))

    def member(self, handle: str) -> Member:
        """The member's row as it is now."""
        return Member.objects.select_related("user").get(pk=self.organisation.people[handle].member.pk)

    def resource(self, name: str = "order:88213") -> Resource:
        """The resource's row as it is now."""
        return Resource.objects.get(tenant=self.tenant, name=name)


def new_world(*, tier: int = 1, approvals_required: int = 1) -> World:
    """A new organisation with people, an agent and the refund tool under a policy of this kind."""
    label = f"world-{next(_labels)}"
    with quick_passwords():
        return World(
            seed.organisation(f"Demo {label}", label=label, tier=tier, approvals_required=approvals_required)
        )


@pytest.fixture
def world(db: None) -> World:
    """An organisation where one approval at tier 1 is enough."""
    return new_world()


@pytest.fixture(autouse=True)  # in every folder whose conftest imports it
def the_machines_agree(db: None) -> Iterator[None]:
    """After the test, case and operation say the same."""
    yield
    assert_machines_agree()


@contextmanager
def quick_passwords() -> Iterator[None]:
    """Passwords set inside cost nothing, and are good for signing in outside."""
    with override_settings(PASSWORD_HASHERS=["tests.worlds.QuickPasswords"]):
        yield


# Proposing.


def content(**changes: Any) -> Content:
    """A refund of 1,250.00 EUR on ch_1842, but for the changes: parameters by name, or any part of a Content."""
    grounds = {
        name: changes.pop(name)
        for name in ("expects", "rationale", "evidence", "trace_id", "parameters")
        if name in changes
    }
    parameters = {"payment": "ch_1842", "amount_minor": 125_000, "currency": "EUR", **changes}
    return Content(**{"parameters": parameters, "expects": {}, "rationale": "Lost in transit.", **grounds})


def proposed(
    world: World,
    reference: str = "1842",
    *,
    action: str = "refund",
    target: str = "order:88213",
    step: int = 1,
    **changes: Any,
) -> Case:
    """A pending case, as the agent has proposed it."""
    facts = proposals.facts(reference=reference, action=action, target=target, step=step)
    return cases.propose(actor=world.agent, facts=facts, content=content(**changes)).case


def revised(world: World, case: Case, *, seen: Tag | None = None, **changes: Any) -> Case:
    """The case with new content in place of the old."""
    seen = seen or tag_of(current(case))
    return cases.revise(actor=world.agent, case_id=case.pk, seen=seen, content=content(**changes)).case


def withdrawn(world: World, case: Case) -> Case:
    """The case after its agent has taken it back."""
    return cases.withdraw(actor=world.agent, case_id=case.pk, seen=tag_of(current(case))).case


def version_with(world: World, **changes: Any) -> None:
    """The refund tool's next version, but for the changes."""
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    fields = {
        field.name: getattr(tool.versions.latest("number"), field.name)
        for field in ToolVersion._meta.concrete_fields
        if field.name not in ("id", "number", "created_at")
    }
    ToolVersion.objects.create(**{**fields, "number": tool.versions.count() + 1, **changes})


# Deciding.


def say(
    verdict: Verdict,
    case: Case,
    by: Actor,
    *,
    seen: Tag | None = None,
    digest: str | None = None,
    reason: str = "Checked against the order.",
    reason_code: str = "",
    typed_amount: int | None = None,
) -> Decided:
    """A person's word on the case as it is now, or as ``seen`` and ``digest`` say it was."""
    now = current(case)
    word = Word(verdict, digest or now.proposal.digest, reason_code, reason, typed_amount)
    return decisions.decide(actor=by, case_id=case.pk, seen=seen or tag_of(now), word=word)


def approve(case: Case, *reviewers: Actor) -> Case:
    """The case after each of them has approved it."""
    for reviewer in reviewers:
        say(Verdict.APPROVE, case, reviewer, typed_amount=case.proposal.amount_minor)
    return current(case)


def approved(world: World, reference: str = "1842", **changes: Any) -> Case:
    """A case that as many reviewers have approved as its policy asks for; its operation is not started."""
    case = proposed(world, reference, **changes)
    reviewers = [world.reviewer, world.second_reviewer][: case.proposal.policy.approvals_required]
    return approve(case, *reviewers)


def switch_off(world: World, handle: str, how: str) -> None:
    """Takes a reviewer's right away: by the ``role``, the membership (``member``) or the ``user``."""
    member = world.member(handle)
    if how == "member":
        Member.objects.filter(pk=member.pk).update(is_active=False)
    elif how == "user":
        User.objects.filter(pk=member.user_id).update(is_active=False)
    else:
        Member.objects.filter(pk=member.pk).update(roles=[Role.AUDITOR])


def open_finding(world: World, case: Case, kind: FindingKind = FindingKind.TWICE) -> bool:
    """Opens a finding about the case; answers whether it is new."""
    return findings.open_finding(
        tenant_id=world.tenant.pk, kind=kind, about="re_1", subject=case.pk, order_id=None
    )


# Carrying out.


def claim(*, worker: str = WORKER, most: int = 50, after: int = 0, lease: float = LEASE) -> list[Grant]:
    """The grants of one claim."""
    claimed = claims.claim(worker=worker, most=most, after=after, lease=lease)
    reserved = [
        grant
        for resource_id in claimed.reserving
        for grant in claims.claim_reserving(worker=worker, resource_id=resource_id, lease=lease)
    ]
    return [*claimed.grants, *reserved]


def take_over(*, worker: str = "worker-b", most: int = 50, lease: float = LEASE) -> list[Grant]:
    """The grants of one look for unresolved operations that are due again."""
    return claims.take_over(worker=worker, most=most, lease=lease)


def claimed(
    world: World, reference: str = "1842", *, worker: str = WORKER, lease: float = LEASE, **changes: Any
) -> Grant:
    """The first grant on a newly approved case."""
    case = approved(world, reference, **changes)
    return next(grant for grant in claim(worker=worker, lease=lease) if grant.subject == case.pk)


def report(
    grant: Grant,
    outcome: AttemptOutcome = AttemptOutcome.COMMITTED,
    *,
    worker: str = WORKER,
    state: OperationState | None = None,
    **said: Any,
) -> Report:
    """What the grant's worker says came of it; by default the sink's receipt for the effect."""
    state = state or _STATES[outcome]
    committed = outcome == AttemptOutcome.COMMITTED
    told: dict[str, Any] = {
        "wait": None if state in (OperationState.COMMITTED, OperationState.FAILED_BEFORE_COMMIT) else 0.0,
        "sent": outcome != AttemptOutcome.NOT_SENT,
        "reference": f"re_{grant.key[:12]}" if committed else None,
        "receipt": '{"status":"succeeded"}' if committed else None,
        "reason": None if committed else "declined",
        "note": None if committed else "as the test says",
        **said,
    }
    return Report(
        order_id=grant.order_id,
        tenant_id=grant.tenant_id,
        key=grant.key,
        subject=grant.subject,
        tool=grant.tool,
        token=grant.token,
        worker=worker,
        outcome=outcome,
        state=state,
        **told,
    )


_STATES = {
    AttemptOutcome.COMMITTED: OperationState.COMMITTED,
    AttemptOutcome.REFUSED: OperationState.FAILED_BEFORE_COMMIT,
    AttemptOutcome.NOT_SENT: OperationState.STARTED,
    AttemptOutcome.BUSY: OperationState.STARTED,
    AttemptOutcome.IN_PROGRESS: OperationState.STARTED,
    AttemptOutcome.UNCERTAIN: OperationState.OUTCOME_UNKNOWN,
}


def recorded(grant: Grant, outcome: AttemptOutcome = AttemptOutcome.COMMITTED, **said: Any) -> Operation:
    """The operation after the grant's worker has recorded this outcome."""
    outcomes.record([report(grant, outcome, **said)])
    return operation(grant)


def case_in(world: World, state: CaseState, reference: str = "1842") -> Case:
    """A case that has come to this state by the shortest way there is."""
    return _WAYS[state](world, reference)


def _said(verdict: Verdict) -> Callable[[World, str], Case]:
    return lambda world, reference: say(verdict, proposed(world, reference), world.reviewer).case


def _recorded_as(outcome: AttemptOutcome) -> Callable[[World, str], Case]:
    def way(world: World, reference: str) -> Case:
        grant = claimed(world, reference)
        recorded(grant, outcome)
        return Case.objects.get(pk=grant.subject)

    return way


def _expired(world: World, reference: str) -> Case:
    case = proposed(world, reference)
    make_late(case)
    cases.expire_due()
    return current(case)


_WAYS: dict[CaseState, Callable[[World, str], Case]] = {
    CaseState.PENDING: proposed,
    CaseState.RETURNED: _said(Verdict.REQUEST_CHANGES),
    CaseState.HELD: _said(Verdict.HOLD),
    CaseState.APPROVED: approved,
    CaseState.REJECTED: _said(Verdict.REJECT),
    CaseState.WITHDRAWN: lambda world, reference: withdrawn(world, proposed(world, reference)),
    CaseState.EXPIRED: _expired,
    CaseState.EXECUTING: lambda world, reference: Case.objects.get(pk=claimed(world, reference).subject),
    CaseState.EXECUTED: _recorded_as(AttemptOutcome.COMMITTED),
    CaseState.FAILED: _recorded_as(AttemptOutcome.REFUSED),
    CaseState.UNKNOWN: _recorded_as(AttemptOutcome.UNCERTAIN),
}


# Looking.


def current(case: Case) -> Case:
    """The case as the database has it now."""
    return Case.objects.select_related("proposal__policy", "proposal__tool_version", "agent").get(pk=case.pk)


def case_of(grant: Grant) -> Case:
    """The grant's case as the database has it now."""
    return current(Case(pk=grant.subject))


def operation(of: Grant | Case) -> Operation:
    """The newest operation of the grant's case, or of the case."""
    subject = of.subject if isinstance(of, Grant) else of.pk
    return (
        Operation.objects.select_related("order", "resource")
        .filter(order__subject=subject)
        .latest("order_id")
    )


def due_at(of: Grant | Case) -> datetime:
    """When the unsettled operation is looked at again."""
    at = operation(of).due_at
    assert at is not None
    return at


def attempts(of: Grant | Case) -> list[Attempt]:
    """The attempts of that operation, in order."""
    return list(Attempt.objects.filter(operation_id=operation(of).order_id).order_by("number"))


def events(*kinds: ControlEventKind) -> list[ControlEvent]:
    """What the controls have done of these kinds, oldest first."""
    return list(ControlEvent.objects.filter(kind__in=kinds or ControlEventKind).order_by("id"))


def history(case: Case) -> list[tuple[int, str, str]]:
    """(number, state, act) of every revision."""
    return list(case.revisions.order_by("number").values_list("number", "state", "act"))


def tag(case: Case) -> Tag:
    """What somebody sees who reads the case now."""
    return tag_of(current(case))


def make_due() -> None:
    """Whatever waits for a back-off or a lease waits no more."""
    Operation.objects.exclude(due_at=None).update(due_at=Now())


def make_late(case: Case) -> None:
    """Moves the deadline of the case's proposal to a second ago; only a hand at the database can."""
    with triggers_off():
        Proposal.objects.filter(pk=current(case).proposal_id).update(expires_at=Now() - timedelta(seconds=1))


@contextmanager
def triggers_off() -> Iterator[None]:
    """For what only a hand at the database itself could do. Foreign keys sleep, too."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            yield
        finally:
            cursor.execute("SET session_replication_role = origin")


def broken_rule(error: BaseException) -> str | None:
    """The name of the constraint or trigger that refused the statement."""
    cause = error.__cause__
    return cause.diag.constraint_name if isinstance(cause, psycopg.Error) else None


# The two machines agree, always (docs/states.md).


@dataclass(slots=True)
class _Disagreements:
    found: list[str] = field(default_factory=list)

    def unless(self, holds: bool, words: str) -> None:
        if not holds:
            self.found.append(words)


LEADS_TO: dict[str, str | None] = {
    CaseState.PENDING: None,
    CaseState.RETURNED: None,
    CaseState.HELD: None,
    CaseState.REJECTED: None,
    CaseState.WITHDRAWN: None,
    CaseState.EXPIRED: None,
    CaseState.APPROVED: OperationState.NOT_STARTED,
    CaseState.EXECUTING: OperationState.STARTED,
    CaseState.UNKNOWN: OperationState.OUTCOME_UNKNOWN,
    CaseState.EXECUTED: OperationState.COMMITTED,
    CaseState.FAILED: OperationState.FAILED_BEFORE_COMMIT,
}
"""What a case's state says about its newest operation; None: no operation, or one that failed before commit."""


def assert_machines_agree() -> None:
    """Every case, operation, attempt and resource of the database says the same about what happened."""
    wrong = _Disagreements()
    operations = _rows(
        "SELECT o.*, d.subject, d.approved_revision FROM ledger_operation o JOIN ledger_order d ON d.id = o.order_id"
        " ORDER BY o.order_id"
    )
    cases = _rows("SELECT id, state, revision, proposal_id FROM approvals_case")
    by_case, by_resource = _grouped(operations, "subject"), _grouped(operations, "resource_id")
    attempts = _grouped(_rows("SELECT * FROM ledger_attempt ORDER BY operation_id, number"), "operation_id")
    revisions = _grouped(
        _rows("SELECT case_id, number, state, proposal_id FROM approvals_revision ORDER BY case_id, number"),
        "case_id",
    )
    for each in operations:
        _check_grant(each, attempts[each.order_id], wrong)
    for case in cases:
        _check_case(case, by_case.pop(case.id, []), wrong)
        _check_revisions(case, revisions[case.id], wrong)
    wrong.unless(not by_case, f"operations of no case: {dict(by_case)}")
    for resource in _rows("SELECT * FROM ledger_resource"):
        its = by_resource[resource.id]
        _check_resource(resource, its, [row for each in its for row in attempts[each.order_id]], wrong)
    assert not wrong.found, "\n".join(wrong.found)


def _rows(statement: str) -> list[Any]:
    """Without the models: this is asked after every test."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = namedtuple("row", [column.name for column in cursor.description])  # type: ignore[misc]
        return [row(*each) for each in cursor.fetchall()]


def _grouped(rows: Iterable[Any], by: str) -> defaultdict[int, list[Any]]:
    groups: defaultdict[int, list[Any]] = defaultdict(list)
    for row in rows:
        groups[getattr(row, by)].append(row)
    return groups


def _check_case(case: Any, its: Sequence[Any], wrong: _Disagreements) -> None:
    expected = LEADS_TO[case.state]
    failed = OperationState.FAILED_BEFORE_COMMIT
    newest = its[-1] if its else None
    says = f"case {case.id} is {case.state}, its operations are {[each.state for each in its]}"
    live = [each.state for each in its if each.state != failed]
    if expected is None or expected == failed:
        wrong.unless(not live, says)
        wrong.unless(expected is None or newest is not None, says)
    else:  # the newest one, but for a correction: then an older one is the one that happened
        wrong.unless(live == [expected], says)
        wrong.unless(
            case.state == CaseState.EXECUTED or (newest is not None and newest.state == expected), says
        )
    if case.state == CaseState.APPROVED and newest is not None:
        wrong.unless(newest.approved_revision == case.revision, f"{says}, of another revision")


def _check_revisions(case: Any, rows: Sequence[Any], wrong: _Disagreements) -> None:
    wrong.unless(
        [each.number for each in rows] == list(range(1, case.revision + 1)), f"case {case.id}: {rows}"
    )
    wrong.unless(
        bool(rows) and rows[-1][1:] == (case.revision, case.state, case.proposal_id),
        f"case {case.id} is not what its last revision records: {rows}",
    )


def _check_grant(operation: Any, rows: Sequence[Any], wrong: _Disagreements) -> None:
    running = [each for each in rows if each.ended_at is None]
    says = f"operation {operation.order_id} ({operation.state}, token {operation.token}, worker {operation.worker})"
    wrong.unless(
        [each.number for each in rows] == list(range(1, operation.attempt_count + 1)), f"{says}: {rows}"
    )
    if operation.worker is None:
        wrong.unless(not running, f"{says} has an open attempt that nobody holds")
    else:
        held = [(each.token, each.worker) for each in running]
        wrong.unless(held == [(operation.token, operation.worker)], f"{says} has open attempts {held}")
    tokens = [each.token for each in rows]
    wrong.unless(tokens == sorted(set(tokens)), f"{says}: tokens {tokens} do not rise")


def _check_resource(
    resource: Any, its: Sequence[Any], attempts: Sequence[Any], wrong: _Disagreements
) -> None:
    unresolved = [each.order_id for each in its if each.state in UNRESOLVED]
    holder = [] if resource.holder_id is None else [resource.holder_id]
    wrong.unless(holder == unresolved, f"{resource.name} is held by {holder}, unresolved are {unresolved}")
    tokens = [each.token for each in attempts]
    wrong.unless(len(tokens) == len(set(tokens)), f"{resource.name} gave a token twice: {sorted(tokens)}")
    wrong.unless(max(tokens, default=0) <= resource.token, f"{resource.name} is at token {resource.token}")
    committed = sum(each.state == OperationState.COMMITTED for each in its)
    wrong.unless(
        resource.version >= committed, f"{resource.name} counts {resource.version}, {committed} committed"
    )
