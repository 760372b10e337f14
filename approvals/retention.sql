-- What cases said, past its time. The functions are the database's own (migration 0006).

-- name: due
-- Promises the ended cases with numbers in this stretch whose content is past their tool's retention and still there.
SELECT c.id FROM approvals_case c
WHERE c.id > %(after)s AND c.id <= %(before)s
  AND c.state IN ('executed', 'failed', 'rejected', 'withdrawn', 'expired')
  AND NOT EXISTS (SELECT FROM approvals_pruning p WHERE p.case_id = c.id)
  AND EXISTS (
      SELECT FROM approvals_revision r
      WHERE r.case_id = c.id AND r.number = c.revision AND r.at + ledger_horizon(c.tool_id, false) <= clock_timestamp()
  )
ORDER BY c.id;

-- name: lock_ended
-- Promises those of the cases that nobody is at, locked, so that no finding opens and no correction comes between.
SELECT id FROM approvals_case
WHERE id = ANY(%(cases)s) AND state IN ('executed', 'failed', 'rejected', 'withdrawn', 'expired')
ORDER BY id FOR NO KEY UPDATE SKIP LOCKED;

-- name: prunable
-- Promises those of the cases that a trigger would let be pruned at this moment; the ledger has to have let go before.
SELECT case_id FROM approvals_prunable(%(cases)s::bigint[], %(erasing)s) AS may (case_id);

-- name: prune
-- Promises all of the cases emptied, or none.
SELECT approvals_prune(%(cases)s::bigint[], %(by)s, %(because)s, %(erasing)s) AS pruned;
