-- Claims fifty operations, makes their effects and records them, in one transaction.
\set i :i + 1
\set first (:i * :clients + :client_id) * 50
\set last :first + 49
WITH moved AS (
    UPDATE cases SET state = 3, version = version + 1 WHERE id BETWEEN :first AND :last AND version = 7 AND state = 1
    RETURNING id, resource
), fenced AS (
    UPDATE fence SET token = token + 1 WHERE resource IN (SELECT resource FROM moved) RETURNING resource, token
), written AS (
    INSERT INTO operation (key, case_id, fingerprint, token, state, reference, settled_at)
    SELECT md5(moved.id::text)::uuid, moved.id, sha256(moved.id::text::bytea), fenced.token, 2, 'own', now()
    FROM moved JOIN fenced USING (resource)
    ON CONFLICT (key) DO NOTHING RETURNING key, token
), attempted AS (
    INSERT INTO attempt SELECT key, 1, now(), now(), 1 FROM written
)
INSERT INTO effect (key, token, resource, amount) SELECT key, token, 1, 100 FROM written;
