-- What is past its horizon. The functions are the database's own (migration 0008), so that every path is the same one.

-- name: orders_of
-- Promises every order of the subjects.
SELECT id, subject FROM ledger_order WHERE subject = ANY(%(subjects)s) ORDER BY id;

-- name: prunable
-- Promises those of the orders that a trigger would let be pruned at this moment.
SELECT order_id FROM ledger_prunable(%(orders)s::bigint[], %(erasing)s) AS may (order_id);

-- name: prune
-- Promises all of the orders emptied, or none.
SELECT ledger_prune(%(orders)s::bigint[], %(by)s, %(because)s, %(erasing)s) AS pruned;

-- name: late_reports
-- Promises operations that were pruned, and of which a report came afterwards that is past the horizon by now, too.
SELECT DISTINCT e.operation_id
FROM ledger_evidence e
JOIN ledger_pruning p ON p.operation_id = e.operation_id
JOIN ledger_operation o ON o.order_id = e.operation_id
WHERE (e.receipt IS NOT NULL OR e.note IS NOT NULL)
  AND e.recorded_at + ledger_horizon(o.tool_id, false) <= clock_timestamp()
  AND EXISTS (SELECT FROM ledger_prunable(ARRAY[e.operation_id], false))
ORDER BY e.operation_id LIMIT %(most)s;

-- name: prune_events
-- Promises up to `most` events emptied that matched nothing in all the time their content is kept.
SELECT ledger_prune_events(%(most)s) AS pruned;
