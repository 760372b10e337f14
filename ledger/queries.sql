-- The statements that carry the protocol (docs/protocol.md). Rows are named by = ANY(array), which plans well at a
-- million rows and without statistics; the clock is always the database's.

-- name: find_by_index
-- Promises that plans made in this transaction, which are then kept, find rows by index: a table that is small when it
-- is first asked grows, and a plan that reads all of it would stay.
SET LOCAL enable_seqscan = off;

-- name: due_resources
-- Promises up to `most` resources, in id order after `after`, that have an order due; each once however hot it is.
-- Orders of the tools in `full` are passed by: their sinks take nothing more at this moment.
-- Safe because it only reads: what it finds is locked and looked at again by the next two statements.
WITH RECURSIVE due AS (
    (SELECT resource_id FROM ledger_operation
     WHERE state = 'not_started' AND due_at <= clock_timestamp() AND resource_id > %(after)s
       AND NOT tool_id = ANY(%(full)s::bigint[])
     ORDER BY resource_id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.resource_id FROM ledger_operation o
            WHERE o.state = 'not_started' AND o.due_at <= clock_timestamp() AND o.resource_id > due.resource_id
              AND NOT o.tool_id = ANY(%(full)s::bigint[])
            ORDER BY o.resource_id LIMIT 1)
    FROM due WHERE due.resource_id IS NOT NULL
)
SELECT resource_id FROM due WHERE resource_id IS NOT NULL LIMIT %(most)s;

-- name: lock_free_resources
-- Promises up to `most` of the resources that nobody holds, locked until the transaction ends.
-- Safe because `holder_id IS NULL` is judged again on the locked row, and a locked one is skipped, never waited for.
-- NO KEY: an approval that commits checks its foreign key to the resource under KEY SHARE, and must not be held up.
SELECT id FROM ledger_resource
WHERE id = ANY(%(resources)s) AND holder_id IS NULL
ORDER BY id LIMIT %(most)s
FOR NO KEY UPDATE SKIP LOCKED;

-- name: pick_due_operations
-- Promises the longest-due operation of each locked resource, locked, with what the claim's checks and the grant need.
-- Safe because it runs in a fresh snapshot after the resources were locked: no second claimer can be here for them.
SELECT o.order_id, o.resource_id, r.name AS resource, r.version AS resource_version, o.tool_id, o.state, o.worker,
       o.attempt_count, d.tenant_id, d.agent_id, d.tool_version_id, d.key, d.subject, d.approved_revision, d.fingerprint,
       d.digest, d.body, d.amount_minor, d.currency, d.expected_version, d.sink_version,
       ARRAY(SELECT key FROM ledger_order e WHERE e.subject = d.subject AND e.id < d.id ORDER BY e.id) AS earlier_keys,
       (SELECT id FROM ledger_toolversion v WHERE v.tool_id = o.tool_id ORDER BY number DESC LIMIT 1) AS newest_id
FROM unnest(%(resources)s::bigint[]) AS locked (resource_id)
JOIN ledger_resource r ON r.id = locked.resource_id
CROSS JOIN LATERAL (
    SELECT order_id, resource_id, tool_id, state, worker, attempt_count FROM ledger_operation
    WHERE resource_id = locked.resource_id AND state = 'not_started' AND due_at <= clock_timestamp()
    ORDER BY due_at, order_id LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED
) o
JOIN ledger_order d ON d.id = o.order_id
ORDER BY o.order_id;

-- name: due_again
-- Promises up to `most` unresolved operations whose lease or back-off is over, the longest over first.
-- Safe because it only reads; the resource's lock and the next statement decide.
SELECT order_id, resource_id FROM ledger_operation
WHERE state IN ('started', 'outcome_unknown') AND due_at <= clock_timestamp()
ORDER BY due_at, order_id LIMIT %(most)s;

-- name: lock_held_resources
-- Promises those of the resources that are still held by one of the operations, locked.
-- Safe because every grant and every recording of these operations needs the same lock first.
SELECT id FROM ledger_resource
WHERE id = ANY(%(resources)s) AND holder_id = ANY(%(orders)s)
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED;

-- name: pick_due_again
-- Promises the unresolved operations of the locked resources that are still due, locked, as the claim's pick does.
-- Safe because a renewal that came between pushed `due_at` on, and is seen here on the locked row.
SELECT o.order_id, o.resource_id, r.name AS resource, r.version AS resource_version, o.tool_id, o.state, o.worker,
       o.attempt_count, d.tenant_id, d.agent_id, d.tool_version_id, d.key, d.subject, d.approved_revision, d.fingerprint,
       d.digest, d.body, d.amount_minor, d.currency, d.expected_version, d.sink_version,
       ARRAY(SELECT key FROM ledger_order e WHERE e.subject = d.subject AND e.id < d.id ORDER BY e.id) AS earlier_keys,
       (SELECT id FROM ledger_toolversion v WHERE v.tool_id = o.tool_id ORDER BY number DESC LIMIT 1) AS newest_id
FROM ledger_operation o
JOIN ledger_resource r ON r.id = o.resource_id AND r.holder_id = o.order_id
JOIN ledger_order d ON d.id = o.order_id
WHERE o.resource_id = ANY(%(resources)s)
  AND o.state IN ('started', 'outcome_unknown') AND o.due_at <= clock_timestamp()
ORDER BY o.order_id
FOR NO KEY UPDATE OF o SKIP LOCKED;

-- name: attempts_so_far
-- Promises what each operation's earlier attempts mean for the next one. Ages in seconds, by the database's clock.
-- An attempt without a word from its worker (`sent` unset) may have been sent.
SELECT operation_id,
       bool_or(maybe_sent) AS maybe_sent,
       extract(epoch FROM clock_timestamp() - min(started_at) FILTER (WHERE maybe_sent))::float8 AS first_sent,
       extract(epoch FROM clock_timestamp() - max(started_at) FILTER (WHERE maybe_sent))::float8 AS last_sent,
       bool_or(answer_stored) AS answer_stored,
       count(*) FILTER (WHERE outcome = 'in_progress') AS in_progress,
       count(*) FILTER (WHERE sent IS NULL) AS lost
FROM (
    SELECT operation_id, started_at, answer_stored, outcome, sent,
           coalesce(sent, true) AND coalesce(outcome NOT IN ('not_sent', 'busy'), true) AS maybe_sent
    FROM ledger_attempt WHERE operation_id = ANY(%(orders)s)
) attempt
GROUP BY operation_id;

-- name: grant_operations
-- Promises each operation a token above every earlier one of its resource, a lease, and a new open attempt.
-- Safe because resource and operation are locked by this transaction; a row that does not match is missing in the
-- answer, and the caller counts. The attempt it replaces was closed by `close_superseded_attempts` before.
WITH fenced AS (
    UPDATE ledger_resource r
    SET token = r.token + 1,
        holder_id = (%(orders)s::bigint[])[array_position(%(resources)s::bigint[], r.id)]
    WHERE r.id = ANY(%(resources)s)
      AND (r.holder_id IS NULL
           OR r.holder_id = (%(orders)s::bigint[])[array_position(%(resources)s::bigint[], r.id)])
    RETURNING r.id, r.token
), granted AS (
    UPDATE ledger_operation o
    SET state = CASE o.state WHEN 'not_started' THEN 'started' ELSE o.state END,
        token = fenced.token,
        worker = %(worker)s,
        due_at = clock_timestamp() + make_interval(secs => %(lease)s),
        attempt_count = o.attempt_count + 1
    FROM fenced
    WHERE o.order_id = ANY(%(orders)s) AND o.resource_id = fenced.id
      AND o.state IN ('not_started', 'started', 'outcome_unknown')
    RETURNING o.order_id, o.token, o.attempt_count, o.state
)
INSERT INTO ledger_attempt (operation_id, number, token, worker, started_at, lookups)
SELECT order_id, attempt_count, token, %(worker)s, clock_timestamp(), 0 FROM granted ORDER BY order_id
RETURNING operation_id AS order_id, number, token;

-- name: close_superseded_attempts
-- Promises that a take-over leaves no attempt open behind it.
-- Safe because the operation is locked: its old worker can no longer close the attempt by a recording.
UPDATE ledger_attempt
SET ended_at = clock_timestamp(), outcome = 'superseded'
WHERE operation_id = ANY(%(orders)s) AND ended_at IS NULL;

-- name: end_operations
-- Promises that operations whose claim ended them are settled: nothing of them was ever sent.
-- Safe because both arrays come from rows this transaction has locked.
UPDATE ledger_operation o
SET state = 'failed_before_commit', settled_at = clock_timestamp(), due_at = NULL, worker = NULL,
    reason = (%(reasons)s::text[])[array_position(%(orders)s::bigint[], o.order_id)]
WHERE o.order_id = ANY(%(orders)s) AND o.state IN ('not_started', 'started')
RETURNING o.order_id;

-- name: free_resources
-- Promises that a resource whose operation is final can be claimed for the next one.
UPDATE ledger_resource SET holder_id = NULL
WHERE id = ANY(ARRAY(SELECT resource_id FROM ledger_operation WHERE order_id = ANY(%(orders)s)))
  AND holder_id = ANY(%(orders)s);

-- name: put_off_operations
-- Promises that operations a claim found waiting for something are looked at again after a while.
-- Safe because it is only called for what is due, so it takes no time from a lease.
UPDATE ledger_operation SET due_at = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE order_id = ANY(%(orders)s) AND state IN ('not_started', 'started', 'outcome_unknown')
  AND due_at <= clock_timestamp();

-- name: set_operations_aside
-- Promises that no worker takes these operations by itself again: they are unknown, and wait for a person.
-- Safe because the rows are locked by this transaction. A hundred years, because an unsettled operation is always due.
UPDATE ledger_operation
SET state = 'outcome_unknown', reason = 'set_aside', worker = NULL, due_at = clock_timestamp() + interval '100 years'
WHERE order_id = ANY(%(orders)s) AND state IN ('started', 'outcome_unknown')
RETURNING order_id;

-- name: take_for_word
-- Promises a person's word a token above every grant of the resource, unless a worker holds the operation now.
-- Safe because the resource is locked by this transaction: no grant can come between.
WITH free AS (
    SELECT order_id, resource_id FROM ledger_operation
    WHERE order_id = %(order_id)s AND state IN ('started', 'outcome_unknown')
      AND (worker IS NULL OR due_at <= clock_timestamp())
    FOR NO KEY UPDATE
), fenced AS (
    UPDATE ledger_resource r SET token = r.token + 1 FROM free WHERE r.id = free.resource_id
    RETURNING r.token
)
UPDATE ledger_operation o SET token = fenced.token, worker = NULL
FROM fenced, free WHERE o.order_id = free.order_id
RETURNING o.token;

-- name: renew_leases
-- Promises a longer lease to the grants that are still the newest of their operation; the others are missing in the
-- answer, and their workers stop. Safe because the token is part of the WHERE: a stalled worker cannot take a lease back.
-- A row somebody has locked is being recorded or granted anew: it is passed by, so that a heartbeat waits for nobody.
WITH held AS (
    SELECT o.order_id FROM ledger_operation o
    JOIN unnest(%(orders)s::bigint[], %(tokens)s::bigint[]) AS mine (order_id, token) USING (order_id, token)
    WHERE o.order_id = ANY(%(orders)s) AND o.worker = %(worker)s AND o.state IN ('started', 'outcome_unknown')
    FOR NO KEY UPDATE OF o SKIP LOCKED
)
UPDATE ledger_operation o
SET due_at = clock_timestamp() + make_interval(secs => %(lease)s)
FROM held WHERE o.order_id = ANY(%(orders)s) AND o.order_id = held.order_id
RETURNING o.order_id, o.token;

-- name: lock_recorded_resources
-- Promises the resources of the operations, locked in id order: the first lock of every word on an operation.
SELECT r.id FROM ledger_resource r
WHERE r.id IN (SELECT resource_id FROM ledger_operation WHERE order_id = ANY(%(orders)s))
ORDER BY r.id
FOR NO KEY UPDATE;

-- name: lock_grants_in_force
-- Promises which of the grants are still in force, with their operation's state, their resources locked in id order.
-- Safe because token and holder are judged again on the locked resource, which every grant changes: a newer grant that
-- committed meanwhile drops the row here, and none can come while this transaction is open.
-- Unresolved is said by what it is not: else the planner walks the index of all that are, each dead entry of it.
SELECT o.order_id, o.token, o.state
FROM unnest(%(orders)s::bigint[], %(tokens)s::bigint[]) AS report (order_id, token)
JOIN ledger_operation o ON o.order_id = report.order_id AND o.token = report.token AND o.worker IS NOT NULL
JOIN ledger_resource r ON r.id = o.resource_id AND r.holder_id = o.order_id AND r.token = o.token
WHERE o.order_id = ANY(%(orders)s) AND o.state NOT IN ('not_started', 'committed', 'failed_before_commit')
ORDER BY r.id
FOR NO KEY UPDATE OF r;

-- name: record_operations
-- Promises each operation the state its worker's report amounts to, once, by the token in force; its attempt closed; its
-- resource let go and one version up, where that is final and where it happened. An unknown outcome waits, but not
-- where an event about it came while its worker was at it: then `make_due` left it to the worker, which may not have seen.
-- Safe because token and state are in the WHERE: a stale recording changes nothing, and the caller counts the rows.
WITH report AS (
    SELECT * FROM unnest(%(orders)s::bigint[], %(tokens)s::bigint[], %(states)s::text[], %(references)s::text[],
                         %(reasons)s::text[], %(waits)s::float8[], %(outcomes)s::text[], %(sent)s::boolean[],
                         %(lookups)s::int[], %(stored)s::boolean[], %(receipts)s::text[], %(notes)s::text[])
        AS report (order_id, token, state, reference, reason, wait, outcome, sent, lookups, stored, receipt, note)
), recorded AS (
    UPDATE ledger_operation o
    SET state = report.state,
        reference = report.reference,
        reason = report.reason,
        worker = NULL,
        due_at = CASE
            WHEN report.wait IS NULL THEN NULL
            WHEN report.state = 'outcome_unknown' AND EXISTS (
                SELECT FROM ledger_inboundevent e
                JOIN ledger_attempt a ON a.operation_id = e.operation_id AND a.token = report.token
                WHERE e.operation_id = report.order_id AND e.matched_at >= a.started_at
            ) THEN clock_timestamp()
            ELSE clock_timestamp() + make_interval(secs => report.wait)
        END,
        settled_at = CASE WHEN report.wait IS NULL THEN clock_timestamp() END
    FROM report
    WHERE o.order_id = ANY(%(orders)s) AND o.order_id = report.order_id AND o.token = report.token
      AND o.state NOT IN ('not_started', 'committed', 'failed_before_commit')
    RETURNING o.order_id, o.resource_id, o.state, o.token, o.attempt_count, report.outcome, report.sent, report.lookups,
              report.stored, report.receipt, report.note
), closed AS (
    UPDATE ledger_attempt a
    SET ended_at = clock_timestamp(), outcome = recorded.outcome, sent = recorded.sent, lookups = recorded.lookups,
        answer_stored = recorded.stored, receipt = recorded.receipt, note = recorded.note
    FROM recorded
    WHERE a.operation_id = ANY(%(orders)s) AND a.operation_id = recorded.order_id AND a.number = recorded.attempt_count
      AND a.token = recorded.token AND a.ended_at IS NULL
    RETURNING a.operation_id
), freed AS (
    UPDATE ledger_resource r
    SET version = r.version + CASE WHEN recorded.state = 'committed' THEN 1 ELSE 0 END, holder_id = NULL
    FROM recorded
    WHERE r.id = ANY(ARRAY(SELECT resource_id FROM recorded)) AND r.id = recorded.resource_id AND r.holder_id = recorded.order_id
      AND recorded.state IN ('committed', 'failed_before_commit')
    RETURNING r.id
)
SELECT closed.operation_id AS order_id,
       EXISTS (SELECT FROM ledger_reservation v WHERE v.operation_id = closed.operation_id) AS reserved
FROM closed;

-- name: settle_resources
-- Promises that a committed effect raises its resource's version by one and that a final operation lets go of it.
UPDATE ledger_resource r
SET version = r.version + CASE WHEN r.holder_id = ANY(%(committed)s) THEN 1 ELSE 0 END, holder_id = NULL
WHERE r.id = ANY(ARRAY(SELECT resource_id FROM ledger_operation WHERE order_id = ANY(%(final)s)))
  AND r.holder_id = ANY(%(final)s);

-- name: other_references
-- Promises the orders about which late evidence names another effect than the one that is now recorded.
SELECT DISTINCT e.operation_id
FROM unnest(%(orders)s::bigint[], %(references)s::text[]) AS report (order_id, reference)
JOIN ledger_evidence e ON e.operation_id = report.order_id AND e.reference <> report.reference;

-- name: make_due
-- Promises that an unresolved operation nobody is working on is looked at now.
-- Safe because a live grant is left alone: its worker is looking already, and its recording looks for events.
UPDATE ledger_operation SET due_at = clock_timestamp()
WHERE order_id = ANY(%(orders)s) AND state IN ('started', 'outcome_unknown') AND worker IS NULL;

-- name: settle_on_a_word
-- Promises the outcome a person attests, by the token the word has taken. Safe because the token is in the WHERE.
UPDATE ledger_operation
SET state = %(state)s, reference = %(reference)s, reason = %(reason)s, worker = NULL, due_at = NULL,
    settled_at = clock_timestamp()
WHERE order_id = %(order_id)s AND token = %(token)s AND state IN ('started', 'outcome_unknown')
RETURNING order_id;

-- name: correct_operation
-- Promises that an operation taken for failed is committed, and its resource one version up.
-- Safe because the state is in the WHERE and resource and case are locked by the caller.
WITH corrected AS (
    UPDATE ledger_operation
    SET state = 'committed', reference = %(reference)s, reason = NULL, settled_at = clock_timestamp()
    WHERE order_id = %(order_id)s AND state = 'failed_before_commit'
    RETURNING order_id, resource_id
)
UPDATE ledger_resource r SET version = r.version + 1
FROM corrected WHERE r.id = corrected.resource_id
RETURNING corrected.order_id;

-- name: close_findings
-- Promises that the open ones of the findings are closed. Safe because a closed one is no longer in the WHERE.
UPDATE ledger_finding SET closed_at = clock_timestamp(), closed_by = %(by)s, closed_because = %(because)s
WHERE id = ANY(%(findings)s) AND closed_at IS NULL
RETURNING id, subject;

-- name: make_subjects_due
-- Promises that what waited for a finding to close is looked at now. Safe because a live grant is left alone.
UPDATE ledger_operation SET due_at = clock_timestamp()
WHERE order_id IN (SELECT id FROM ledger_order WHERE subject = ANY(%(subjects)s))
  AND state IN ('not_started', 'started', 'outcome_unknown') AND worker IS NULL;

-- name: disputed_subjects
-- Promises those of the subjects about which a finding is open. In a claim, ask when their cases are locked.
SELECT subject FROM ledger_finding WHERE subject = ANY(%(subjects)s) AND closed_at IS NULL;

-- name: hold_tenants
-- Promises those of the tenants that nobody is halting at this moment, held until the transaction ends.
-- Safe because it waits for nobody, and a halt waits for it.
SELECT tenant_id, pg_try_advisory_xact_lock_shared(%(locks)s, hashtext(tenant_id::text)) AS held
FROM unnest(%(tenants)s::uuid[]) AS asked (tenant_id);

-- name: halts_in_force
-- Promises what stands still of these tenants now. In a claim, ask when they are held: in a snapshot after their locks.
SELECT tenant_id, tool_id, reason FROM ledger_halt
WHERE tenant_id = ANY(%(tenants)s::uuid[]) AND (ends_at IS NULL OR ends_at > clock_timestamp());
