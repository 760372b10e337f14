"""People, agents, workers and sinks, each doing any of their acts at any time; after every act the invariants hold.

One step is one act. What takes a worker several acts is several steps, so that everybody else's come in between, and a
worker may be gone before the next. Time stands still but where a rule lets it pass.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.db import connection, models, transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.strategies import DataObject

from accounts.models import Member, Role
from approvals import cases, compensations, halts, resolutions
from approvals.errors import Refusal
from approvals.models import Case
from approvals.resolutions import Word
from approvals.states import CaseState, Verdict
from approvals.tags import tag_of
from config.demo import seed
from ledger import attestations, budgets, findings
from ledger import claims as ledger_claims
from ledger.claims import Grant
from ledger.models import Budget, Finding, Halt, Operation, Tool
from ledger.outcomes import Report
from ledger.reconciliation import Overtaken
from ledger.states import (
    SETTLED,
    UNRESOLVED,
    AttestedOutcome,
    BudgetSpan,
    EnforcementClass,
    FindingKind,
    OperationState,
)
from tests.protocol.peers import (
    NaturalReference,
    Nothing,
    OwnedWrite,
    Peer,
    ProviderKey,
    Weather,
    registered,
)
from tests.worlds import LEASE, World, assert_machines_agree, content, current, proposed, say
from workers import claims, outcomes, reconciliation
from workers.leases import Lease
from workers.performance import perform

DAY = timedelta(hours=26)
"""Longer than a key window, than any request is on its way, and than a worker stands between its clock and its send."""
UNDO = "undo"
_LONG = 10_000.0
_KEPT = {"ledger_tool", "ledger_toolversion", "approvals_policy"}
_ACTION = st.sampled_from(["provider", "owned", "natural", "nothing"])
_SCOPE = st.sampled_from([None, "provider", "owned", "natural", "nothing"])
"""Everything, or one tool."""
_WEATHER = st.sampled_from([Weather.FINE, Weather.ANSWER_LOST, Weather.DELAYED, *Weather])
_SEES = st.sampled_from([True, True, False])


@dataclass
class Ground:
    """One organisation with a tool for each sink, whose rows of the last run can be cleared away."""

    world: World
    peers: dict[str, Peer]

    @classmethod
    def laid(cls, world: World) -> "Ground":
        """Registers the tools: each action is named as its sink."""
        made = [
            ProviderKey("provider"),
            ProviderKey(UNDO),
            OwnedWrite("owned"),
            NaturalReference("natural"),
            Nothing("nothing", lists=False),
        ]
        with registered(made):
            for peer in made:
                seed.tool(world.tenant, peer.name, {**_TOOL, **_CLASSES[peer.name], "connector": peer.name})
        with _by_hand() as cursor:  # so that passes over the sinks reach back far enough
            cursor.execute("UPDATE ledger_toolversion SET created_at = created_at - interval '400 days'")
        return cls(world, {peer.name: peer for peer in made})

    def clear(self) -> None:
        """Takes away what a run has left; organisation, people and tools stay."""
        with _by_hand() as cursor:
            cursor.execute("; ".join(f"DELETE FROM {model._meta.db_table}" for model in _left_by_a_run()))
        self.give_roles(Role.REVIEWER)
        for peer in self.peers.values():
            peer.forget()

    def give_roles(self, *roles: Role) -> None:
        """The first reviewer has these roles from now on."""
        Member.objects.filter(pk=self.world.organisation.people["reviewer"].member.pk).update(
            roles=list(roles)
        )


_TOOL: dict[str, Any] = {
    **seed.LEDGER_REFUND,
    "key_window": None,
    "order": {"reference": "{reference}/{step}", "amount": "{amount_minor}", "currency": "{currency}"},
    "compensation": {
        "action": UNDO,
        "target": "{target}",
        "parameters": {"undoes": "{sink_reference}"},
    },
}
_WINDOW = {"enforcement": EnforcementClass.PROVIDER_KEY, "key_window": timedelta(hours=24)}
_CLASSES: dict[str, dict[str, Any]] = {
    "provider": _WINDOW,
    "owned": {"enforcement": EnforcementClass.OWNED_WRITE},
    "natural": {"enforcement": EnforcementClass.NATURAL_REFERENCE},
    "nothing": {"enforcement": EnforcementClass.NONE},
    UNDO: {
        **_WINDOW,
        "sentence": "Undo {undoes}",
        "schema": {
            "type": "object",
            "properties": {"undoes": {"type": "string"}},
            "required": ["undoes"],
            "additionalProperties": False,
        },
        "order": {"undoes": "{undoes}"},
        "amount_field": "",
        "currency_field": "",
        "value_limits": {},
        "compensation": None,
    },
}


@dataclass(eq=False, repr=False)
class Held:
    """A grant in a worker's hands, before it is carried out. ``asleep``: too long to send anything but to a fence."""

    grant: Grant
    worker: str
    asleep: bool = False

    def __repr__(self) -> str:
        return f"{self.grant.tool} on {self.grant.resource}, token {self.grant.token} of worker {self.worker}"

    @property
    def may_still_send(self) -> bool:
        """Whether its request may leave, however long ago the grant was given."""
        return not self.asleep or self.grant.enforcement == EnforcementClass.OWNED_WRITE


@dataclass
class Facts:
    """What the ledger says after a step, read once for all invariants."""

    cases: list[tuple[int, str]] = field(default_factory=list)
    operations: dict[int, Any] = field(default_factory=dict)
    is_in_the_way: bool = False
    """Whether anything is halted, disputed or limited."""
    references: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def read(cls) -> "Facts":
        """Operations by order, and the references that attempts and evidence keep of each."""
        facts = cls()
        facts.cases = [
            (row["id"], row["state"]) for row in _rows("SELECT id, state FROM approvals_case ORDER BY id")
        ]
        facts.is_in_the_way = _rows(f"SELECT {_IN_THE_WAY} AS any")[0]["any"]
        for row in _rows(
            "SELECT o.order_id, o.state, o.action_key, o.reference, o.token, o.resource_id, d.key, d.subject"
            " FROM ledger_operation o JOIN ledger_order d ON d.id = o.order_id ORDER BY o.order_id"
        ):
            facts.operations[row["order_id"]] = row
            facts.references[row["order_id"]].add(row["reference"])
        for row in _rows("SELECT operation_id, receipt FROM ledger_attempt WHERE receipt IS NOT NULL"):
            facts.references[row["operation_id"]].add(json.loads(row["receipt"])["reference"])
        for row in _rows("SELECT operation_id, reference FROM ledger_evidence WHERE reference IS NOT NULL"):
            facts.references[row["operation_id"]].add(row["reference"])
        return facts


class AnyOrder(RuleBasedStateMachine):
    """The acts, in any order. ``ground`` is cleared after each run."""

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self.ground, self.world, self.peers = ground, ground.world, ground.peers
        self.tenant_id = self.world.tenant.pk
        self.held: list[Held] = []
        self.unrecorded: list[Report] = []
        self.recorded: list[Report] = []
        self.tokens: dict[int, int] = {}
        self.reviews = True
        self.facts = Facts()
        self.agreed_on: list[dict[str, Any]] = []

    def teardown(self) -> None:
        self.ground.clear()

    # Who acts. Each rule is somebody who does one of the things that can be done now.

    @initialize(actions=st.tuples(_ACTION, _ACTION))
    def two_actions_are_approved(self, actions: tuple[str, str]) -> None:
        for number, action in enumerate(actions, 1):
            self._approve(proposed(self.world, "A", action=action, target=f"order:{number}", **_MONEY))

    @rule(draw=st.data())
    def an_agent_or_a_reviewer_acts(self, draw: DataObject) -> None:
        acts = [self.proposes]
        if self._cases(*_AGAIN):
            acts += [self.proposes_again] * 3
        if self._cases(*_STILL_OPEN):
            acts += [self.changes_its_mind]
        self._any_of(draw, acts)

    @precondition(lambda self: self._has_work("a"))
    @rule(draw=st.data())
    def a_first_worker_acts(self, draw: DataObject) -> None:
        self._works(draw, "a")

    @precondition(lambda self: self._has_work("b"))
    @rule(draw=st.data())
    def a_second_worker_acts(self, draw: DataObject) -> None:
        self._works(draw, "b")

    @precondition(lambda self: self._has_work("c"))
    @rule(draw=st.data())
    def a_third_worker_acts(self, draw: DataObject) -> None:
        self._works(draw, "c")

    @precondition(lambda self: self._travelling())
    @rule(draw=st.data())
    def a_late_request_arrives(self, draw: DataObject) -> None:
        peer, number = draw.draw(st.sampled_from(self._travelling()))
        self.peers[peer].arrives(number)

    @precondition(lambda self: self._unresolved() or self._listed())
    @rule(draw=st.data())
    def an_operator_acts_or_a_day_passes(self, draw: DataObject) -> None:
        acts = [self.reconciles] if self._listed() else []
        if self._unresolved():
            acts += [self.attests, self.attests, self.stops, self.asks_now, self.a_day]
        if self._operations(OperationState.COMMITTED):
            acts += [self.compensates]
        self._any_of(draw, acts)

    @precondition(lambda self: not self._is_in_the_way())
    @rule(draw=st.data())
    def something_gets_in_the_way(self, draw: DataObject) -> None:
        self._any_of(draw, [self.halts, self.disputes, self.limits, self.dismisses])

    @precondition(lambda self: self._is_in_the_way())
    @rule()
    def everything_is_put_right(self) -> None:
        for halt in Halt.objects.filter(ends_at=None).select_related("tool"):
            halts.end(actor=self.world.operator, tool=halt.tool.name if halt.tool else None)
        opened = Finding.objects.filter(closed_at=None).values_list("pk", flat=True)
        findings.close(finding_ids=list(opened), by="person:Demo", because="A test says so.")
        for budget in Budget.objects.filter(closed_at=None):
            budgets.close(tenant_id=self.tenant_id, budget_id=budget.pk, by="person:Demo")
        self._give_roles(Role.REVIEWER)
        self._leases_and_pauses_run_out()

    def _any_of(self, draw: DataObject, acts: Sequence[Callable[[DataObject], None]]) -> None:
        names = {act.__name__: act for act in acts}
        names[draw.draw(st.sampled_from([act.__name__ for act in acts]), "act")](draw)

    # Agents and reviewers.

    def proposes(self, draw: DataObject) -> None:
        action, number = draw.draw(_ACTION), draw.draw(st.sampled_from([1, 2]))
        reference = draw.draw(st.sampled_from("AB"))
        with suppress(Refusal):
            self._approve(proposed(self.world, reference, action=action, target=f"order:{number}", **_MONEY))

    def _approve(self, case: Case) -> None:
        say(Verdict.APPROVE, case, self.world.reviewer, typed_amount=case.proposal.amount_minor)

    def proposes_again(self, draw: DataObject) -> None:
        """After nothing came of it, perhaps with other content; one that waits is approved."""
        case = current(Case(pk=draw.draw(st.sampled_from(self._cases(*_AGAIN)))))
        parameters = json.loads(case.proposal.material)["parameters"]
        if case.action != UNDO:
            parameters["amount_minor"] = draw.draw(st.sampled_from([1000, 2000]))
        with suppress(Refusal):
            if case.state != CaseState.PENDING:
                again = content(parameters=parameters)
                cases.revise(actor=self.world.agent, case_id=case.pk, seen=tag_of(case), content=again)
            self._approve(case)

    def changes_its_mind(self, draw: DataObject) -> None:
        case = current(Case(pk=draw.draw(st.sampled_from(self._cases(*_STILL_OPEN)))))
        what = draw.draw(st.sampled_from([*Verdict, None]))
        with suppress(Refusal):
            if what is not None:
                say(what, case, self.world.second_reviewer)
            else:
                cases.withdraw(actor=self.world.agent, case_id=case.pk, seen=tag_of(case))

    # Workers: claim or take over, carry out, record. Each is a step, and a worker may die before any.

    def _has_work(self, worker: str) -> bool:
        mine: list[Any] = [*self.held, *self.unrecorded, *self.recorded]
        return bool(self._live()) or any(each.worker == worker for each in mine)

    def _live(self) -> list[int]:
        return self._operations(OperationState.NOT_STARTED, *UNRESOLVED)

    def _works(self, draw: DataObject, worker: str) -> None:
        acts: list[Callable[[DataObject, str], None]] = []
        if _of(self.unrecorded, worker):
            acts += [*[self.records] * 5, self.records_all, self.dies_before_it_records]
        if _of(self.held, worker):
            acts += [*[self.carries_out] * 6, self.beats, self.dies_before_it_sends]
        if self._operations(OperationState.NOT_STARTED):
            acts += [self.claims] * 3
        if self._unresolved():
            acts += [self.takes_over] * (1 if self.held or self.unrecorded else 3)
        if _of(self.recorded, worker):
            acts += [self.records_again]
        self._any_of(draw, [_named(act, worker) for act in acts])

    def claims(self, draw: DataObject, worker: str) -> None:
        before = _budgets_room()
        claimed = claims.claim(worker=worker, most=draw.draw(st.integers(1, 3)), after=0, lease=LEASE)
        grants = claimed.grants
        for resource_id in claimed.reserving:
            grants += claims.claim_reserving(worker=worker, resource_id=resource_id, lease=LEASE)
        self._hold(grants, worker)
        for period, room in _budgets_room().items():
            assert room >= min(0, before.get(period, 0)), (
                f"a claim has exceeded budget period {period}: {room}"
            )

    def takes_over(self, draw: DataObject, worker: str) -> None:
        if draw.draw(st.sampled_from([True, True, True, False]), "leases are over"):
            self._leases_and_pauses_run_out()
        self._hold(claims.take_over(worker=worker, most=draw.draw(st.integers(1, 3)), lease=LEASE), worker)

    def _hold(self, grants: list[Grant], worker: str) -> None:
        for grant in grants:
            resource_id = Operation.objects.values_list("resource_id", flat=True).get(pk=grant.order_id)
            assert grant.token > self.tokens.get(resource_id, 0), (
                "a grant's token is not above all earlier ones"
            )
            self.held.append(Held(grant, worker))

    def beats(self, draw: DataObject, worker: str) -> None:
        for held in _of(self.held, worker):
            pair = (held.grant.order_id, held.grant.token)
            held.asleep |= not ledger_claims.renew([pair], worker=worker, lease=LEASE)

    def carries_out(self, draw: DataObject, worker: str) -> None:
        """A worker whose lease is over may not know it yet: it stood still after its look at the clock."""
        held = draw.draw(st.sampled_from(_of(self.held, worker)))
        self.held.remove(held)
        peer = self.peers[held.grant.connector]
        peer.weather, peer.sees = draw.draw(_WEATHER), draw.draw(_SEES)
        now = time.monotonic()
        ends = now + _LONG if held.may_still_send else now - 1
        lease = Lease(held.grant.order_id, held.grant.token, ends=ends, call_ends=now + _LONG)
        self.unrecorded.append(perform(held.grant, lease, worker=worker))

    def records(self, draw: DataObject, worker: str) -> None:
        self._record([draw.draw(st.sampled_from(_of(self.unrecorded, worker)))])

    def records_all(self, draw: DataObject, worker: str) -> None:
        self._record(_of(self.unrecorded, worker))

    def _record(self, reports: list[Report]) -> None:
        outcomes.record(reports)
        self.unrecorded = [each for each in self.unrecorded if each not in reports]
        self.recorded += reports

    def records_again(self, draw: DataObject, worker: str) -> None:
        report = draw.draw(st.sampled_from(_of(self.recorded, worker)))
        outcomes.record([report])
        self.recorded.remove(report)

    def dies_before_it_sends(self, draw: DataObject, worker: str) -> None:
        self.held = [each for each in self.held if each.worker != worker]

    def dies_before_it_records(self, draw: DataObject, worker: str) -> None:
        self.unrecorded = [each for each in self.unrecorded if each.worker != worker]

    # The sinks and the clock.

    def _travelling(self) -> list[tuple[str, int]]:
        return [
            (name, number)
            for name, peer in self.peers.items()
            for number in range(len(peer.on_its_way) + len(peer.worked_on))
        ]

    def _leases_and_pauses_run_out(self) -> None:
        _run(f"UPDATE ledger_operation SET due_at = clock_timestamp() WHERE {_SOON}")

    def a_day(self, draw: DataObject) -> None:
        """No request is on its way so long, and nobody stands so long between the clock and the send."""
        for peer in self.peers.values():
            peer.day_passes(DAY)
        for held in self.held:
            held.asleep = True
        with _by_hand() as cursor:
            cursor.execute("; ".join(_earlier(model) for model in _left_by_a_run()))
            for days in ("- 10000", "+ 9999"):  # in two steps, since no two days may be the same on the way
                cursor.execute(f"UPDATE ledger_budgetperiod SET begins_on = begins_on {days}")
        cases.expire_due()

    # What gets in the way.

    def halts(self, draw: DataObject) -> None:
        with suppress(Refusal):
            halts.begin(actor=self.world.operator, tool=draw.draw(_SCOPE), reason="A test says so.")

    def disputes(self, draw: DataObject) -> None:
        case_id = draw.draw(st.sampled_from(self._cases(*CaseState)))
        with transaction.atomic():
            cases.locked(actor=self.world.operator, case_id=case_id)
            findings.open_finding(
                tenant_id=self.tenant_id, kind=FindingKind.TWICE, about="x", subject=case_id, order_id=None
            )

    def limits(self, draw: DataObject) -> None:
        name, limit = draw.draw(_SCOPE), draw.draw(st.sampled_from([0, 1500, 3000]))
        tool_id = Tool.objects.get(tenant=self.tenant_id, name=name).pk if name else None
        budgets.make(
            tenant_id=self.tenant_id,
            tool_id=tool_id,
            span=BudgetSpan.DAY,
            currency="EUR",
            limit_minor=limit,
            by="person:Demo",
        )

    def dismisses(self, draw: DataObject) -> None:
        self._give_roles(Role.AUDITOR)

    def _give_roles(self, role: Role) -> None:
        self.reviews = role == Role.REVIEWER
        self.ground.give_roles(role)

    def _is_in_the_way(self) -> bool:
        return self.facts.is_in_the_way or not self.reviews

    # Operators.

    def attests(self, draw: DataObject) -> None:
        """Truthfully, having looked at the sink itself: what a person says wrongly no rule can make right."""
        operation = self._drawn(draw, *UNRESOLVED)
        peer = self.peers[operation.tool.name]
        shown = [each.reference for each in peer.effects if each.key == operation.order.key]
        happened = AttestedOutcome.HAPPENED if shown else AttestedOutcome.DID_NOT_HAPPEN
        self._act(resolutions.attest, operation, word=Word(happened, "Seen there.", reference="".join(shown)))

    def stops(self, draw: DataObject) -> None:
        self._act(resolutions.stop, self._drawn(draw, *UNRESOLVED), reason="A test says so.")

    def asks_now(self, draw: DataObject) -> None:
        self._act(resolutions.look_now, self._drawn(draw, *UNRESOLVED))

    def _act(self, act: Callable[..., object], operation: Operation, **said: Any) -> None:
        tag = attestations.tag_of(operation)
        with suppress(Refusal):
            act(actor=self.world.operator, key=operation.order.key, seen=tag, **said)

    def compensates(self, draw: DataObject) -> None:
        operation = self._drawn(draw, OperationState.COMMITTED)
        with suppress(Refusal):
            key = operation.order.key
            self._approve(compensations.compensate(actor=self.world.operator, key=key, rationale="").case)

    def _drawn(self, draw: DataObject, *states: OperationState) -> Operation:
        order_id = draw.draw(st.sampled_from(self._operations(*states)))
        return Operation.objects.select_related("order__tool_version", "tool").get(pk=order_id)

    def reconciles(self, draw: DataObject) -> None:
        name = draw.draw(st.sampled_from(self._listed()))
        with suppress(Overtaken):
            reconciliation.reconcile(tool=Tool.objects.get(tenant=self.tenant_id, name=name))

    def _listed(self) -> list[str]:
        return [name for name, peer in self.peers.items() if peer.lists and peer.effects]

    # What there is to choose from, as it was after the last step.

    def _cases(self, *states: CaseState) -> list[int]:
        return [case_id for case_id, state in self.facts.cases if state in states]

    def _operations(self, *states: OperationState) -> list[int]:
        return [order_id for order_id, row in self.facts.operations.items() if row["state"] in states]

    def _unresolved(self) -> list[int]:
        return self._operations(*UNRESOLVED)

    # What always holds.

    @invariant()
    def time_stands_still(self) -> None:
        """What is not due now is not due by itself before a rule says so, however slow the machine."""
        _run(f"UPDATE ledger_operation SET due_at = clock_timestamp() + interval '1 hour' WHERE {_LATER}")

    @invariant()
    def case_and_operation_agree(self) -> None:
        """Asked where a step has written anything: the question costs more than most steps."""
        written = _rows(_ALL_IT_READS)
        if written != self.agreed_on:
            assert_machines_agree()
            self.agreed_on = written

    @invariant()
    def all_else_holds(self) -> None:
        self.facts = facts = Facts.read()
        self._effects_happen_once(facts)
        self._nobody_acts_for_what_has_failed(facts)
        self._no_evidence_is_lost(facts)
        self._tokens_rise()
        _budgets_add_up()
        assert not Halt.objects.filter(began_by="fence").exists(), (
            "a sink has seen a token that was never given"
        )

    def _effects_happen_once(self, facts: Facts) -> None:
        """Counted at the sinks: by idempotency key, by action, and of what undoes an effect by that effect."""
        actions = {row["key"]: row["action_key"] for row in facts.operations.values()}
        happened = [each for peer in self.peers.values() for each in peer.effects]
        _assert_once("idempotency key", Counter(each.key for each in happened))
        _assert_once("action", Counter(actions[each.key] for each in happened))
        _assert_once("undone effect", Counter(each.order["undoes"] for each in self.peers[UNDO].effects))

    def _nobody_acts_for_what_has_failed(self, facts: Facts) -> None:
        """What is said not to have happened has not, and no request and no worker can make it happen any more."""
        failed = {row["key"]: row for row in facts.operations.values() if row["state"] == _FAILED}
        for peer in self.peers.values():
            wrong = [each for each in peer.effects if each.key in failed]
            assert not wrong, f"said to have failed, and happened: {wrong}"
            if not isinstance(peer, OwnedWrite):  # there the fence keeps them out
                coming = [*peer.on_its_way, *peer.worked_on]
                coming += [
                    each.grant for each in self.held if each.grant.connector == peer.name and not each.asleep
                ]
                late = [each.key for each in coming if each.key in failed]
                assert not late, f"said to have failed, and a request may still come: {late}"

    def _no_evidence_is_lost(self, facts: Facts) -> None:
        """A receipt that was given is kept, or its operation still asks, or its worker is about to say it."""
        by_key = {row["key"]: row for row in facts.operations.values()}
        to_be_said = {each.reference for each in self.unrecorded}
        for peer in self.peers.values():
            keys = {each.reference: each.key for each in peer.effects}
            for reference in peer.receipts:
                row = by_key[keys[reference]]
                kept = reference in facts.references[row["order_id"]] or reference in to_be_said
                assert kept or row["state"] not in SETTLED, f"the receipt {reference} is lost: {row}"

    def _tokens_rise(self) -> None:
        for row in _rows("SELECT id, token FROM ledger_resource"):
            assert row["token"] >= self.tokens.get(row["id"], 0), f"the token of resource {row['id']} fell"
            self.tokens[row["id"]] = row["token"]


_FAILED = OperationState.FAILED_BEFORE_COMMIT
_STILL_OPEN = (CaseState.PENDING, CaseState.HELD, CaseState.RETURNED, CaseState.REJECTED, CaseState.APPROVED)
_AGAIN = (CaseState.FAILED, CaseState.EXPIRED, CaseState.WITHDRAWN, CaseState.RETURNED, CaseState.PENDING)
_MONEY: dict[str, Any] = {"parameters": {"amount_minor": 1000, "currency": "EUR"}}
_LATER = "due_at > clock_timestamp() AND due_at < clock_timestamp() + interval '1 year'"
_SOON = "due_at IS NOT NULL AND due_at < clock_timestamp() + interval '1 year'"
_IN_THE_WAY = " OR ".join(
    f"EXISTS (SELECT FROM {table} WHERE {column} IS NULL)"
    for table, column in (
        ("ledger_halt", "ends_at"),
        ("ledger_finding", "closed_at"),
        ("ledger_budget", "closed_at"),
    )
)
_ALL_IT_READS = "SELECT {}".format(
    ", ".join(
        f"(SELECT md5(string_agg(t::text, ' ' ORDER BY t::text)) FROM {table} t) AS {table}"
        for table in (
            "approvals_case",
            "approvals_revision",
            "ledger_operation",
            "ledger_attempt",
            "ledger_resource",
        )
    )
)


def _of(these: list[Any], worker: str) -> list[Any]:
    return [each for each in these if each.worker == worker]


def _named(act: Callable[[DataObject, str], None], worker: str) -> Callable[[DataObject], None]:
    """The worker's act, under the act's own name."""

    def its(draw: DataObject) -> None:
        act(draw, worker)

    its.__name__ = act.__name__
    return its


def _assert_once(what: str, effects: Counter[str]) -> None:
    twice = {each: times for each, times in effects.items() if times > 1}
    assert not twice, f"more than one effect by {what}: {twice}"


def _budgets_room() -> dict[int, int]:
    rows = _rows(
        "SELECT p.id, b.limit_minor - p.reserved_minor - p.consumed_minor AS room"
        " FROM ledger_budgetperiod p JOIN ledger_budget b ON b.id = p.budget_id"
    )
    return {row["id"]: row["room"] for row in rows}


def _budgets_add_up() -> None:
    wrong = _rows(
        "SELECT p.id, p.reserved_minor, p.consumed_minor FROM ledger_budgetperiod p"
        " LEFT JOIN ledger_reservation r ON r.period_id = p.id GROUP BY p.id"
        " HAVING p.reserved_minor <> coalesce(sum(r.amount_minor) FILTER (WHERE r.consumed IS NULL), 0)"
        " OR p.consumed_minor <> coalesce(sum(r.amount_minor) FILTER (WHERE r.consumed), 0)"
    )
    assert not wrong, f"budget periods and reservations differ: {wrong}"
    wrong = _rows(
        "SELECT r.operation_id, r.consumed, o.state FROM ledger_reservation r"
        " JOIN ledger_operation o ON o.order_id = r.operation_id"
        " WHERE (r.consumed IS NULL) <> (o.state IN ('started', 'outcome_unknown'))"
        " OR r.consumed <> (o.state = 'committed')"
    )
    assert not wrong, f"reservations and outcomes differ: {wrong}"


# The database by hand.


class _by_hand:  # noqa: N801  reads as a word
    """A cursor for what only a hand at the database can do: its triggers and foreign keys sleep."""

    def __enter__(self) -> Any:
        self._atomic = transaction.atomic()
        self._atomic.__enter__()
        self._cursor = connection.cursor()
        self._cursor.execute("SET LOCAL session_replication_role = replica")
        return self._cursor

    def __exit__(self, *error: Any) -> None:
        self._cursor.close()
        self._atomic.__exit__(*error)


def _left_by_a_run() -> list[type[models.Model]]:
    return [
        model
        for name in ("ledger", "approvals")
        for model in apps.get_app_config(name).get_models()
        if model._meta.db_table not in _KEPT
    ]


def _earlier(model: type[models.Model]) -> str:
    """The statement that makes every moment in the model's table a day earlier."""
    moments = [each.column for each in model._meta.concrete_fields if isinstance(each, models.DateTimeField)]
    moves = ", ".join(f"{each} = {each} - interval '{DAY.total_seconds()} seconds'" for each in moments)
    return f"UPDATE {model._meta.db_table} SET {moves}" if moves else "SELECT 1"


def _rows(statement: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _run(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
