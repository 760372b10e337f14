-- Claims one operation, makes its effect and records it, in one transaction.
\set i :i + 1
\set id :i * :clients + :client_id
WITH moved AS (
    UPDATE cases SET state = 3, version = version + 1 WHERE id = :id AND version = 7 AND state = 1 RETURNING id, resource
), fenced AS (
    UPDATE fence SET token = token + 1 FROM moved WHERE fence.resource = moved.resource RETURNING token
), written AS (
    INSERT INTO operation (key, case_id, fingerprint, token, state, reference, settled_at)
    SELECT md5(:id::text)::uuid, moved.id, sha256(:id::text::bytea), fenced.token, 2, 'own', now() FROM moved, fenced
    ON CONFLICT (key) DO NOTHING RETURNING key, token
), attempted AS (
    INSERT INTO attempt SELECT key, 1, now(), now(), 1 FROM written
)
INSERT INTO effect (key, token, resource, amount) SELECT written.key, written.token, moved.resource, 100 FROM written, moved;
