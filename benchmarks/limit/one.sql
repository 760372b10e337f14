-- Claims one operation and records it, in two transactions.
\set i :i + 1
\set id :i * :clients + :client_id
WITH moved AS (
    UPDATE cases SET state = 2, version = version + 1 WHERE id = :id AND version = 7 AND state = 1 RETURNING id, resource
), fenced AS (
    UPDATE fence SET token = token + 1 FROM moved WHERE fence.resource = moved.resource RETURNING token
), written AS (
    INSERT INTO operation (key, case_id, fingerprint, token, state)
    SELECT md5(:id::text)::uuid, moved.id, sha256(:id::text::bytea), fenced.token, 1 FROM moved, fenced
    ON CONFLICT (key) DO NOTHING RETURNING key, token
)
INSERT INTO attempt (key, number, started_at) SELECT key, 1, now() FROM written RETURNING (SELECT token FROM written);
WITH settled AS (
    UPDATE operation SET state = 2, reference = 'ref_' || :id, settled_at = now()
    WHERE key = md5(:id::text)::uuid AND state = 1 RETURNING key, case_id
), closed AS (
    UPDATE attempt SET ended_at = now(), outcome = 1 FROM settled WHERE attempt.key = settled.key AND number = 1
)
UPDATE cases SET state = 3, version = version + 1 FROM settled WHERE cases.id = settled.case_id AND cases.state = 2;
