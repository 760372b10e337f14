-- Claims fifty operations and records them, in two transactions.
\set i :i + 1
\set first (:i * :clients + :client_id) * 50
\set last :first + 49
WITH moved AS (
    UPDATE cases SET state = 2, version = version + 1
    WHERE id = ANY(ARRAY(SELECT generate_series(:first::bigint, :last::bigint))) AND version = 7 AND state = 1
    RETURNING id, resource
), fenced AS (
    UPDATE fence SET token = token + 1 WHERE resource = ANY(ARRAY(SELECT resource FROM moved)) RETURNING resource, token
), written AS (
    INSERT INTO operation (key, case_id, fingerprint, token, state)
    SELECT md5(moved.id::text)::uuid, moved.id, sha256(moved.id::text::bytea), fenced.token, 1
    FROM moved JOIN fenced USING (resource)
    ON CONFLICT (key) DO NOTHING RETURNING key, token
)
INSERT INTO attempt (key, number, started_at) SELECT key, 1, now() FROM written;
WITH settled AS (
    UPDATE operation SET state = 2, reference = 'ref_' || case_id, settled_at = now()
    WHERE key = ANY(ARRAY(SELECT md5(n::text)::uuid FROM generate_series(:first::bigint, :last::bigint) n)) AND state = 1
    RETURNING key, case_id
), closed AS (
    UPDATE attempt SET ended_at = now(), outcome = 1 WHERE key = ANY(ARRAY(SELECT key FROM settled)) AND number = 1
)
UPDATE cases SET state = 3, version = version + 1 WHERE id = ANY(ARRAY(SELECT case_id FROM settled)) AND state = 2;
