-- Ledger against a sink's own listing (docs/protocol.md, Reconcile). The listing is streamed in pages; every statement
-- works on one page, however long the listing is.

-- name: earliest_sent
-- Promises since when the operations that were settled in a range may have had their effects: the listing begins there.
SELECT min(a.started_at) AS started_at
FROM ledger_operation o JOIN ledger_attempt a ON a.operation_id = o.order_id
WHERE o.tool_id = %(tool)s AND o.state = 'committed' AND o.settled_at >= %(since)s AND o.settled_at <= %(until)s;

-- name: by_reference
-- Promises the committed operations of the tools that a page's effects are recorded under.
SELECT o.order_id, o.tool_id, o.action_key, o.settled_at, d.key, d.subject, d.amount_minor, d.currency, o.reference
FROM ledger_operation o JOIN ledger_order d ON d.id = o.order_id
WHERE o.tool_id = ANY(%(tools)s) AND o.reference = ANY(%(references)s);

-- name: by_key
-- Promises what the ledger knows of the keys that a page's effects carry, whichever tool or tenant they are of: a sink
-- may be shared. `rival` is the live operation of the same action, if it is another; `extras` the second effects that
-- were ever found of it, `undone` the compensations of it that have happened.
SELECT o.order_id, o.tool_id, o.state, o.action_key, o.settled_at, d.tenant_id, d.key, d.subject, d.amount_minor,
       d.currency, o.reference, r.order_id AS rival, r.state AS rival_state,
       (SELECT count(*) FROM ledger_finding f
        WHERE f.operation_id = coalesce(r.order_id, o.order_id) AND f.kind = 'twice') AS extras,
       (SELECT count(*) FROM ledger_order c JOIN ledger_operation u ON u.order_id = c.id AND u.state = 'committed'
        WHERE c.compensates_id = coalesce(r.order_id, o.order_id)) AS undone
FROM ledger_order d
JOIN ledger_operation o ON o.order_id = d.id
LEFT JOIN ledger_operation r
    ON r.action_key = o.action_key AND r.state <> 'failed_before_commit' AND r.order_id <> o.order_id
WHERE d.key = ANY(%(keys)s);

-- name: see
-- Promises that the effects of these operations count as seen by the pass, however often.
INSERT INTO ledger_sighting (reconciliation_id, operation_id)
SELECT %(reconciliation)s, order_id FROM unnest(%(orders)s::bigint[]) AS seen (order_id)
ON CONFLICT DO NOTHING;

-- name: go_on
-- Promises that a page is compared once: the pass moves from one cursor to the next, or somebody else was faster.
-- Safe because the old cursor is in the WHERE, in the transaction that wrote what the page showed.
UPDATE ledger_reconciliation
SET cursor = %(next)s, effects = effects + %(effects)s, operations = operations + %(operations)s,
    opened = opened + %(opened)s, error = ''
WHERE id = %(reconciliation)s AND cursor = %(cursor)s AND ended_at IS NULL
RETURNING id;

-- name: unseen
-- Promises the next `most` committed operations that the listing must have shown: those it has not, and the last one,
-- with how many there were. `sent_at`: when the first attempt was granted; what may be older than the listing's
-- beginning is not judged. Reads `operations_settled` in order, so that a page costs the same at the end as at the start.
WITH page AS (
    SELECT order_id, settled_at, reference FROM ledger_operation
    WHERE tool_id = %(tool)s AND state = 'committed' AND settled_at <= %(until)s
      AND settled_at >= %(after_at)s AND (settled_at, order_id) > (%(after_at)s, %(after)s)
    ORDER BY settled_at, order_id LIMIT %(most)s
), numbered AS (
    SELECT *, row_number() OVER (ORDER BY settled_at, order_id) AS n, count(*) OVER () AS total FROM page
), judged AS (
    SELECT p.*, (SELECT min(a.started_at) FROM ledger_attempt a WHERE a.operation_id = p.order_id) AS sent_at,
           EXISTS (SELECT FROM ledger_sighting s
                   WHERE s.reconciliation_id = %(reconciliation)s AND s.operation_id = p.order_id) AS seen
    FROM numbered p
)
SELECT j.order_id, j.settled_at, j.reference, j.total, j.sent_at, j.seen OR j.sent_at < %(since)s AS agrees,
       d.key, d.subject, d.amount_minor, d.currency
FROM judged j JOIN ledger_order d ON d.id = j.order_id
WHERE NOT (j.seen OR j.sent_at < %(since)s) OR j.n = j.total
ORDER BY j.n;

-- name: find
-- Promises one open finding for each matter, seen now; new where there was none. What a person has closed stays closed:
-- their word on the same matter stands.
-- Safe because the matter is unique while it is open; of two passes, the second finds the first one's.
INSERT INTO ledger_finding AS f
    (tenant_id, tool_id, kind, about, subject, operation_id, reference, amount_minor, currency, detail)
SELECT %(tenant)s, %(tool)s, n.kind, n.about, n.subject, n.order_id, n.reference, n.amount_minor, n.currency, n.detail
FROM unnest(%(kinds)s::text[], %(abouts)s::text[], %(subjects)s::bigint[], %(orders)s::bigint[], %(references)s::text[],
            %(amounts)s::bigint[], %(currencies)s::text[], %(details)s::jsonb[])
    AS n (kind, about, subject, order_id, reference, amount_minor, currency, detail)
WHERE NOT EXISTS (
    SELECT FROM ledger_finding p
    WHERE p.tenant_id = %(tenant)s AND p.kind = n.kind AND p.about = n.about AND p.closed_by LIKE 'person:%%'
)
ORDER BY n.kind, n.about
ON CONFLICT (tenant_id, kind, about) WHERE closed_at IS NULL DO UPDATE
SET seen_at = clock_timestamp(), tool_id = excluded.tool_id, reference = excluded.reference,
    amount_minor = excluded.amount_minor, currency = excluded.currency, detail = f.detail || excluded.detail
RETURNING f.id, (f.xmax = 0) AS new;

-- name: closed_groups
-- Promises until when a person has seen to the groups of foreign effects.
SELECT about, max(closed_at) AS closed_at FROM ledger_finding
WHERE tenant_id = %(tenant)s AND kind = 'foreign' AND about = ANY(%(abouts)s) AND closed_by LIKE 'person:%%'
GROUP BY about;

-- name: count_foreign
-- Promises one open finding a tool and day for effects that were never ours, with the most that one pass has counted.
-- Safe because each pass counts for itself (`counting`), in the page's transaction, which moves the cursor.
INSERT INTO ledger_finding AS f (tenant_id, tool_id, kind, about, reference, detail)
VALUES (%(tenant)s, %(tool)s, 'foreign', %(about)s, %(reference)s, %(detail)s::jsonb || jsonb_build_object(
    'count', %(count)s::int, 'counting', jsonb_build_object(%(reconciliation)s::text, %(count)s::int)))
ON CONFLICT (tenant_id, kind, about) WHERE closed_at IS NULL DO UPDATE
SET seen_at = clock_timestamp(),
    detail = f.detail || jsonb_build_object(
        'count', greatest((f.detail->>'count')::int,
                          %(count)s::int + coalesce((f.detail->'counting'->>%(reconciliation)s::text)::int, 0)),
        'counting', jsonb_build_object(%(reconciliation)s::text,
                          %(count)s::int + coalesce((f.detail->'counting'->>%(reconciliation)s::text)::int, 0)))
RETURNING (f.xmax = 0) AS new;

-- name: close_agreed
-- Promises that what this pass would have found again, had it still been so, is closed.
-- Safe because only what lies wholly within the pass's range is judged, and what it has found was marked as seen.
UPDATE ledger_finding f
SET closed_at = clock_timestamp(), closed_by = 'reconciliation', closed_because = %(because)s
FROM ledger_reconciliation r
WHERE r.id = %(reconciliation)s AND r.ended_at IS NULL
  AND f.tenant_id = r.tenant_id AND f.tool_id = r.tool_id AND f.closed_at IS NULL AND f.seen_at < r.began_at
  AND (f.detail->>'from')::timestamptz >= r.since AND (f.detail->>'to')::timestamptz <= %(until)s
RETURNING f.id;

-- name: end
-- Promises that a pass ends once, when both sides have been looked through.
UPDATE ledger_reconciliation SET ended_at = clock_timestamp(), closed = %(closed)s, error = %(error)s
WHERE id = %(reconciliation)s AND ended_at IS NULL
RETURNING id;

-- name: forget_sightings
-- Promises that a pass that has ended leaves nothing of what it saw behind; so many rows a call.
DELETE FROM ledger_sighting WHERE ctid = ANY(ARRAY(
    SELECT s.ctid FROM ledger_sighting s JOIN ledger_reconciliation r ON r.id = s.reconciliation_id
    WHERE r.tool_id = %(tool)s AND r.ended_at IS NOT NULL LIMIT %(most)s))
RETURNING operation_id;

-- name: still_open
-- Promises how many findings of the tools are open and ask for a person, by tool and kind; what is muted asks nobody.
SELECT tool_id, kind, count(*) AS n, count(*) FILTER (WHERE muted_at IS NULL AND kind <> 'foreign') AS asking
FROM ledger_finding WHERE tenant_id = %(tenant)s AND tool_id = ANY(%(tools)s) AND closed_at IS NULL
GROUP BY tool_id, kind ORDER BY tool_id, kind;
