-- What is measured, from rows. Each reads the events of one tenant in a range of time, or what is unsettled now.

-- name: events
-- Promises how many control events there were by kind, source and action, in steps of `step` seconds that count
-- backwards from `until`: 0 is the newest. Reads the range of `control_events_by_time` and nothing before it.
SELECT kind, source, action, floor(extract(epoch FROM %(until)s - at) / %(step)s)::int AS age, count(*) AS n
FROM ledger_controlevent
WHERE tenant_id = %(tenant)s AND at > %(since)s AND at <= %(until)s
GROUP BY kind, source, action, age;

-- name: conflicts_by_subject
-- Promises the subject on which decisions were refused most often as stale, with how often.
SELECT action, subject, count(*) AS n
FROM ledger_controlevent
WHERE tenant_id = %(tenant)s AND at > %(since)s AND at <= %(until)s AND kind = 'version_conflict'
  AND subject IS NOT NULL
GROUP BY action, subject ORDER BY n DESC, subject LIMIT 1;

-- name: fenced_by_hour
-- Promises how many old workers' writes were refused in each hour, counting backwards from `until`.
SELECT floor(extract(epoch FROM %(until)s - at) / 3600)::int AS age, count(*) AS n
FROM ledger_controlevent
WHERE tenant_id = %(tenant)s AND at > %(since)s AND at <= %(until)s AND kind = 'fenced_write'
GROUP BY age;

-- name: unresolved
-- Promises every operation whose outcome is open, with since when it may have had one: the first attempt that may
-- have been sent. `silent`: its worker holds a lease that has run out, so its outcome is unknown, too.
SELECT o.order_id, o.state, o.worker IS NOT NULL AND o.due_at <= clock_timestamp() AS silent, o.due_at,
       d.amount_minor, d.currency, v.objective, clock_timestamp() AS now,
       (SELECT min(a.started_at) FROM ledger_attempt a
        WHERE a.operation_id = o.order_id AND coalesce(a.sent, true)
          AND coalesce(a.outcome NOT IN ('not_sent', 'busy'), true)) AS since
FROM ledger_operation o
JOIN ledger_tool t ON t.id = o.tool_id
JOIN ledger_order d ON d.id = o.order_id
JOIN ledger_toolversion v ON v.id = d.tool_version_id
WHERE o.state IN ('started', 'outcome_unknown') AND t.tenant_id = %(tenant)s
ORDER BY o.order_id;

-- name: oldest_due
-- Promises since when the operation has been due that has waited longest for its first worker; nothing if none waits.
SELECT min(o.due_at) AS due_at
FROM ledger_operation o JOIN ledger_tool t ON t.id = o.tool_id
WHERE o.state = 'not_started' AND o.due_at <= clock_timestamp() AND t.tenant_id = %(tenant)s;

-- name: settled
-- Promises how many operations were settled by tool and state, in steps of `step` seconds backwards from `until`.
SELECT o.tool_id, o.state, floor(extract(epoch FROM %(until)s - o.settled_at) / %(step)s)::int AS age, count(*) AS n
FROM ledger_operation o
WHERE o.tool_id = ANY(%(tools)s) AND o.settled_at > %(since)s AND o.settled_at <= %(until)s
GROUP BY o.tool_id, o.state, age;

-- name: passes
-- Promises the passes over the tools' sinks that ended in the range: what was seen there, and what the ledger had.
SELECT tool_id, effects, operations, floor(extract(epoch FROM %(until)s - ended_at) / %(step)s)::int AS age
FROM ledger_reconciliation
WHERE tool_id = ANY(%(tools)s) AND ended_at > %(since)s AND ended_at <= %(until)s AND error = ''
ORDER BY id;
