-- Budgets: reserved at the claim, settled at the final outcome (docs/protocol.md, Budgets). Rows by id, always in order.

-- name: open_budgets
-- Promises the open budgets of the tenants. The caller matches tool, agent and currency.
SELECT id, tenant_id, tool_id, agent_id, currency, span, limit_minor
FROM ledger_budget
WHERE tenant_id = ANY(%(tenants)s) AND closed_at IS NULL
ORDER BY id;

-- name: make_periods
-- Promises that each budget has a row for the period of this moment, in UTC. Safe at once: the unique index decides.
INSERT INTO ledger_budgetperiod (budget_id, begins_on, reserved_minor, consumed_minor)
SELECT id, date_trunc(span, clock_timestamp() AT TIME ZONE 'UTC')::date, 0, 0
FROM ledger_budget WHERE id = ANY(%(budgets)s) ORDER BY id
ON CONFLICT (budget_id, begins_on) DO NOTHING;

-- name: hold_period
-- Promises that whoever reserves or settles in the budget's period of this moment comes before this transaction or sees
-- what it did. Safe because it writes the row: a claim that began earlier is refused with 40001 and done again whole.
UPDATE ledger_budgetperiod p SET reserved_minor = p.reserved_minor
FROM ledger_budget b
WHERE b.id = %(budget)s AND p.budget_id = b.id
  AND p.begins_on = date_trunc(b.span, clock_timestamp() AT TIME ZONE 'UTC')::date
RETURNING p.id;

-- name: carry_over
-- Promises the held period's counts and reservations under another budget too: what settles later settles in both.
WITH carried AS (
    INSERT INTO ledger_budgetperiod (budget_id, begins_on, reserved_minor, consumed_minor)
    SELECT %(budget)s, begins_on, reserved_minor, consumed_minor FROM ledger_budgetperiod WHERE id = %(period)s
    RETURNING id
)
INSERT INTO ledger_reservation (operation_id, period_id, amount_minor, consumed)
SELECT r.operation_id, carried.id, r.amount_minor, r.consumed
FROM ledger_reservation r CROSS JOIN carried
WHERE r.period_id = %(period)s ORDER BY r.operation_id;

-- name: room
-- Promises what each budget has left in the period of this moment, in minor units.
SELECT p.id, b.id AS budget_id, b.limit_minor - p.reserved_minor - p.consumed_minor AS room
FROM ledger_budgetperiod p JOIN ledger_budget b ON b.id = p.budget_id
WHERE b.id = ANY(%(budgets)s) AND p.begins_on = date_trunc(b.span, clock_timestamp() AT TIME ZONE 'UTC')::date
ORDER BY p.id;

-- name: reserve
-- Promises the amount in every period that has room for it, and a reservation for each; the caller counts.
-- Safe because the limit is part of the WHERE, on the row as it is, and the transaction is SERIALIZABLE beside.
WITH reserved AS (
    UPDATE ledger_budgetperiod p SET reserved_minor = p.reserved_minor + %(amount)s
    FROM ledger_budget b
    WHERE p.id = ANY(%(periods)s) AND b.id = p.budget_id
      AND p.reserved_minor + p.consumed_minor + %(amount)s <= b.limit_minor
    RETURNING p.id
)
INSERT INTO ledger_reservation (operation_id, period_id, amount_minor)
SELECT %(order_id)s, id, %(amount)s FROM reserved ORDER BY id
RETURNING period_id;

-- name: lock_periods_of
-- Promises the periods that open reservations of the orders stand in, locked in id order.
SELECT p.id FROM ledger_budgetperiod p
WHERE p.id IN (SELECT period_id FROM ledger_reservation WHERE operation_id = ANY(%(orders)s))
ORDER BY p.id
FOR NO KEY UPDATE;

-- name: settle_reservations
-- Promises that what happened is consumed and what did not is released. Safe because a reservation settles once:
-- the open ones are in the WHERE, and their periods are locked.
WITH settled AS (
    UPDATE ledger_reservation r SET consumed = r.operation_id = ANY(%(committed)s)
    WHERE r.operation_id = ANY(%(orders)s) AND r.consumed IS NULL
    RETURNING r.period_id, r.amount_minor, r.consumed
), sums AS (
    SELECT period_id, sum(amount_minor) AS freed, coalesce(sum(amount_minor) FILTER (WHERE consumed), 0) AS spent
    FROM settled GROUP BY period_id
)
UPDATE ledger_budgetperiod p
SET reserved_minor = p.reserved_minor - sums.freed, consumed_minor = p.consumed_minor + sums.spent
FROM sums WHERE p.id = sums.period_id;

-- name: consume_released
-- Promises that a released reservation whose effect happened after all is consumed, above the limit if need be.
WITH booked AS (
    UPDATE ledger_reservation r SET consumed = true
    WHERE r.operation_id = %(order_id)s AND r.consumed = false
    RETURNING r.period_id, r.amount_minor
)
UPDATE ledger_budgetperiod p SET consumed_minor = p.consumed_minor + booked.amount_minor
FROM booked WHERE p.id = booked.period_id
RETURNING p.id;

-- name: consume_unreserved
-- Promises that an effect nobody reserved for is consumed in these periods, above the limit if need be.
WITH booked AS (
    INSERT INTO ledger_reservation (operation_id, period_id, amount_minor, consumed)
    SELECT %(order_id)s, id, %(amount)s, true FROM unnest(%(periods)s::bigint[]) AS period (id)
    ON CONFLICT (operation_id, period_id) DO NOTHING
    RETURNING period_id
)
UPDATE ledger_budgetperiod p SET consumed_minor = p.consumed_minor + %(amount)s
FROM booked WHERE p.id = booked.period_id;
