-- Tokens after a restore. They rise, as in a grant; a trigger holds that they never fall.

-- name: raise_tokens
-- Promises that no resource's next token is one that its sink has seen. Answers those that were below.
-- Safe because a token only rises, whoever else raises it at the same time.
INSERT INTO ledger_resource AS r (tenant_id, name, version, token)
SELECT %(tenant)s, name, 0, token FROM unnest(%(names)s::text[], %(tokens)s::bigint[]) AS seen (name, token)
ORDER BY name
ON CONFLICT (tenant_id, name) DO UPDATE SET token = excluded.token WHERE r.token < excluded.token
RETURNING r.id;

-- name: skip_tokens
-- Promises that no token given after the backup is given again to an operation that is still open.
UPDATE ledger_resource r SET token = r.token + %(skipped)s
WHERE r.tenant_id = %(tenant)s AND r.id IN (
    SELECT resource_id FROM ledger_operation WHERE state IN ('not_started', 'started', 'outcome_unknown'))
RETURNING r.id;

-- name: skip_order_numbers
-- Promises that numbers given since the backup are not given again.
SELECT setval(sequence, nextval(sequence) + %(skipped)s)
FROM pg_get_serial_sequence('ledger_order', 'id') AS sequence;
