"""An organisation in which the controls have had to do something of every kind: what the pages of oversight show."""

from datetime import timedelta

from django.db.models import F
from django.db.models.functions import Now

from approvals.errors import VersionConflict
from approvals.states import Verdict
from ledger import budgets, control_events, findings, halts, sweeps
from ledger.models import Attempt, Budget, Order, Probe, Reconciliation, Sweep, Tool, ToolVersion
from ledger.states import SETTLED, AttemptOutcome, BudgetSpan, ControlEventKind, FindingKind, OperationState
from tests import worlds
from tests.worlds import World
from workers import outcomes


def overseen(world: World) -> None:
    """Repeats, conflicts, fenced writes, unknown outcomes, findings, budgets, a pause and a late look."""
    case = worlds.proposed(world, rationale="help.example/\u202egro.elpmaxe")
    for _ in range(12):
        worlds.proposed(world, rationale="help.example/\u202egro.elpmaxe")
    seen = worlds.tag(case)
    worlds.revised(world, case, amount_minor=12_500)
    for _ in range(3):
        try:
            worlds.say(Verdict.REJECT, case, world.reviewer, seen=seen)
        except VersionConflict:
            continue
    _outcomes(world)
    _by_the_ledger(world)
    _budgets(world)
    tool = Tool.objects.get(tenant=world.tenant, name="ledger_refund")
    halts.begin(
        tenant_id=world.tenant.pk,
        tool_id=tool.pk,
        by="person:Olga Demo",
        reason="The books are being closed.",
    )
    for name in ("claim", "take_over", "expire", "reconcile"):
        sweeps.note(name, 2)
    Sweep.objects.filter(name="claim").update(ran_at=Now() - timedelta(minutes=9))


def _outcomes(world: World) -> None:
    for index in range(3):
        worlds.recorded(worlds.claimed(world, f"19{index}", target=f"order:9{index}", amount_minor=20_000))
    worlds.recorded(
        worlds.claimed(world, "1950", target="order:950", amount_minor=3_000), AttemptOutcome.REFUSED
    )
    stalled = worlds.claimed(world, "1960", target="order:960", amount_minor=4_000, lease=worlds.LAPSED)
    worlds.recorded(worlds.take_over()[0], worker="worker-b")
    outcomes.record([worlds.report(stalled)])
    unknown = worlds.claimed(world, "1970", target="order:970", amount_minor=125_000)
    worlds.recorded(unknown, AttemptOutcome.UNCERTAIN, wait=900.0)
    with worlds.triggers_off():
        Attempt.objects.filter(operation_id=unknown.order_id).update(
            started_at=F("started_at") - timedelta(minutes=72)
        )
    worlds.claimed(world, "1980", target="order:980", amount_minor=9_900, lease=worlds.LAPSED)
    findings.open_finding(
        tenant_id=world.tenant.pk,
        kind=FindingKind.TWICE,
        about=unknown.key,
        subject=unknown.subject,
        order_id=unknown.order_id,
    )


def _by_the_ledger(world: World) -> None:
    for kind in (
        ControlEventKind.SERIALIZATION_RETRY,
        ControlEventKind.SERIALIZATION_EXHAUSTED,
        ControlEventKind.BUDGET_REFUSAL,
        ControlEventKind.BREAKER_OPENED,
    ):
        control_events.record(tenant_id=world.tenant.pk, kind=kind, source="worker:worker-1", action="refund")
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    Reconciliation.objects.create(
        tenant=world.tenant, tool=tool, since=Now(), until=Now(), effects=5, operations=4, ended_at=Now()
    )
    version = ToolVersion.objects.get(tool=tool)
    observations = [
        {"claim": "The same key is answered with the first result", "holds": True, "seen": "re_1 twice"},
        {"claim": "Another body under the key is refused", "holds": False, "seen": "200 re_2"},
    ]
    Probe.objects.create(
        tool_version=version,
        sink="https://sandbox.invalid",
        passed=False,
        observations=observations,
        began_at=Now(),
    )


def _budgets(world: World) -> None:
    refund = Tool.objects.get(tenant=world.tenant, name="refund")
    for tool_id, limit in ((None, 2_000_00), (refund.pk, 1_000_00)):
        budgets.make(
            tenant_id=world.tenant.pk,
            span=BudgetSpan.DAY,
            currency="EUR",
            limit_minor=limit,
            by="person:Adam Demo",
            tool_id=tool_id,
        )
    opened = list(Budget.objects.filter(tenant=world.tenant).values_list("pk", flat=True))
    orders = Order.objects.filter(tenant=world.tenant, amount_minor__lt=50_000)
    for order in orders:
        budgets.reserve(order_id=order.pk, amount_minor=order.amount_minor or 0, budget_ids=opened)
    of_state = orders.filter(operation__state__in=SETTLED).values_list("pk", "operation__state")
    happened = [pk for pk, state in of_state if state == OperationState.COMMITTED]
    budgets.settle(orders=[pk for pk, _ in of_state], committed=happened)
    made = budgets.make(
        tenant_id=world.tenant.pk, span=BudgetSpan.WEEK, currency="USD", limit_minor=5, by="person:Adam Demo"
    )
    budgets.close(tenant_id=world.tenant.pk, budget_id=made.pk, by="person:Adam Demo")
