"""Budgets under crossfire: overlapping ones are never exceeded, and who finds no room stays due and says so."""

from concurrent.futures import ThreadPoolExecutor

from django.db import connection

from ledger import budgets
from ledger.models import Budget, BudgetPeriod, Operation, Reservation, Tool
from ledger.states import AttemptOutcome, BudgetSpan, ControlEventKind, OperationState
from tests.races.rivals import race
from tests.seeding import Named, cases_like
from tests.worlds import World, approved, claim, current, events, make_due, operation, recorded
from workers import claims

EACH = 1_000  # minor units


def budget(
    world: World, limit: int, span: BudgetSpan = BudgetSpan.DAY, *, tool: bool = False, agent: bool = False
) -> Budget:
    return budgets.make(
        tenant_id=world.tenant.pk,
        tool_id=Tool.objects.get(tenant=world.tenant, name="refund").pk if tool else None,
        agent_id=world.agent.id if agent else None,
        span=span,
        currency="EUR",
        limit_minor=limit,
        by="person:Demo",
    )


def period(of: Budget) -> tuple[int, int]:
    row = BudgetPeriod.objects.get(budget=of)
    return row.reserved_minor, row.consumed_minor


def test_what_is_claimed_is_reserved_and_what_happens_is_consumed(world: World) -> None:
    day, month = budget(world, 5 * EACH), budget(world, 9 * EACH, BudgetSpan.MONTH, tool=True)
    for number in range(2):
        approved(world, str(number), target=f"order:{number}", amount_minor=EACH)
    first, second = claim()
    assert period(day) == period(month) == (2 * EACH, 0)

    recorded(first)
    recorded(second, AttemptOutcome.REFUSED)

    assert period(day) == period(month) == (0, EACH)


def test_an_unknown_outcome_keeps_its_reservation(world: World) -> None:
    day = budget(world, EACH)
    approved(world, amount_minor=EACH)
    (grant,) = claim()
    recorded(grant, AttemptOutcome.UNCERTAIN)
    assert period(day) == (EACH, 0)


def test_without_room_an_operation_waits_and_is_counted_once(world: World) -> None:
    budget(world, EACH - 1)
    case = approved(world, amount_minor=EACH)
    for _ in range(3):
        assert claim() == []
        make_due()
    assert (operation(case).state, current(case).state) == ("not_started", "approved")
    (event,) = events(ControlEventKind.BUDGET_REFUSAL)
    assert event.subject == case.pk
    assert not Reservation.objects.exists()


def test_room_that_is_released_lets_the_next_one_go_on(world: World) -> None:
    budget(world, EACH)
    approved(world, "1", target="order:1", amount_minor=EACH)
    second = approved(world, "2", target="order:2", amount_minor=EACH)
    (grant,) = claim()
    recorded(grant, AttemptOutcome.REFUSED)
    make_due()
    assert [each.subject for each in claim()] == [second.pk]


def test_a_closed_budget_and_one_of_another_currency_count_nothing(world: World) -> None:
    closed = budget(world, 0)
    assert budgets.close(tenant_id=world.tenant.pk, budget_id=closed.pk, by="person:Demo")
    budgets.make(
        tenant_id=world.tenant.pk, span=BudgetSpan.DAY, currency="USD", limit_minor=0, by="person:Demo"
    )
    approved(world, amount_minor=EACH)
    assert len(claim()) == 1
    assert not Reservation.objects.exists()


def test_an_effect_that_is_proven_late_is_booked_above_the_limit_and_stops_new_claims(world: World) -> None:
    day = budget(world, EACH)
    approved(world, amount_minor=EACH)
    (grant,) = claim()
    recorded(grant, AttemptOutcome.REFUSED)
    approved(world, "2", target="order:2", amount_minor=EACH)
    claim()
    budgets.book(operation(grant).order)

    assert period(day) == (EACH, EACH)
    (room,) = budgets.rooms([day.pk])
    assert room.minor == -EACH
    approved(world, "3", target="order:3", amount_minor=1)
    assert claim() == []


def test_a_claim_that_meets_another_in_a_budget_is_done_again_as_a_whole(world: World) -> None:
    day = budget(world, 2 * EACH)
    case = approved(world, amount_minor=EACH)
    budgets.rooms([day.pk])

    won, lost = race(
        winner=lambda: BudgetPeriod.objects.filter(budget=day).update(reserved_minor=EACH),
        loser=claim,
    )

    assert (won.error, lost.error) == (None, None)
    assert (operation(case).state, operation(case).attempt_count) == ("started", 1)
    assert period(day) == (2 * EACH, 0)
    retried = events(ControlEventKind.SERIALIZATION_RETRY)
    assert [(each.subject, each.detail["sqlstate"]) for each in retried] == [(case.pk, "40001")]


def test_two_hundred_claims_at_once_never_exceed_one_of_three_overlapping_budgets(world: World) -> None:
    tenants = budget(world, 90 * EACH)
    tools = budget(world, 60 * EACH, BudgetSpan.WEEK, tool=True)
    agents = budget(world, 75 * EACH, BudgetSpan.MONTH, agent=True)
    model = approved(world, "0", target="order:0", amount_minor=EACH)
    cases_like(model, [Named(str(n), f"order:{n}") for n in range(1, 200)], approved=True)
    resources = list(Operation.objects.values_list("resource_id", flat=True))

    def claim_one(resource_id: int) -> int:
        try:
            return len(claims.claim_reserving(worker="worker-a", resource_id=resource_id, lease=30.0))
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as pool:
        granted = sum(pool.map(claim_one, resources))

    assert period(tenants) == period(tools) == period(agents)
    reserved, consumed = period(tools)
    assert (reserved, consumed) == (granted * EACH, 0)
    assert granted <= 60
    started = Operation.objects.filter(state=OperationState.STARTED).count()
    assert (started, Reservation.objects.count()) == (granted, 3 * granted)
    exhausted = len(events(ControlEventKind.SERIALIZATION_EXHAUSTED))
    refused = len(events(ControlEventKind.BUDGET_REFUSAL))
    assert granted + exhausted + refused == 200  # each has an answer: nobody was told that it failed
    assert Operation.objects.filter(state=OperationState.NOT_STARTED).count() == 200 - granted


def replaced(of: Budget, limit: int) -> Budget:
    made = budgets.replace(tenant_id=of.tenant_id, budget_id=of.pk, limit_minor=limit, by="person:Demo")
    assert made is not None
    return made


def test_another_limit_counts_on_what_the_period_has_used_and_reserved(world: World) -> None:
    day = budget(world, 3 * EACH, tool=True)
    for number in range(3):
        approved(world, str(number), target=f"order:{number}", amount_minor=EACH)
    first, second, third = claim()
    recorded(first)
    recorded(third, AttemptOutcome.REFUSED)

    larger = replaced(day, 4 * EACH)

    assert (larger.tool_id, larger.span, larger.currency) == (day.tool_id, day.span, day.currency)
    assert period(larger) == period(day) == (EACH, EACH)
    recorded(second)
    budgets.book(operation(third).order)  # it happened after all
    assert period(larger) == period(day) == (0, 3 * EACH)
    (room,) = budgets.rooms([larger.pk])
    assert room.minor == EACH


def test_what_waits_for_room_goes_on_within_the_larger_limit_and_no_further(world: World) -> None:
    day = budget(world, EACH)
    for number in range(3):
        approved(world, str(number), target=f"order:{number}", amount_minor=EACH)
    assert len(claim()) == 1
    larger = replaced(day, 2 * EACH)
    make_due()
    assert len(claim()) == 1
    make_due()
    assert claim() == []
    assert period(larger) == (2 * EACH, 0)


def test_a_claim_that_meets_a_replacement_reserves_in_the_new_budget(world: World) -> None:
    day = budget(world, EACH)
    approved(world, amount_minor=EACH)
    budgets.rooms([day.pk])

    won, lost = race(winner=lambda: replaced(day, 2 * EACH), loser=claim)

    assert (won.error, lost.error) == (None, None)
    larger = Budget.objects.get(closed_at=None)
    assert (period(day), period(larger)) == ((0, 0), (EACH, 0))


def test_an_outcome_that_meets_a_replacement_is_settled_in_both(world: World) -> None:
    day = budget(world, EACH)
    approved(world, amount_minor=EACH)
    (grant,) = claim()

    won, lost = race(winner=lambda: replaced(day, 2 * EACH), loser=lambda: recorded(grant))

    assert (won.error, lost.error) == (None, None)
    larger = Budget.objects.get(closed_at=None)
    assert period(day) == period(larger) == (0, EACH)


def test_of_two_replacements_at_once_one_is_made(world: World) -> None:
    day = budget(world, EACH)
    budgets.rooms([day.pk])

    won, lost = race(
        winner=lambda: replaced(day, 2 * EACH),
        loser=lambda: budgets.replace(
            tenant_id=day.tenant_id, budget_id=day.pk, limit_minor=3 * EACH, by="person:Demo"
        ),
    )

    assert (won.error, lost.error, lost.value) == (None, None, None)
    assert [each.limit_minor for each in Budget.objects.filter(closed_at=None)] == [2 * EACH]
