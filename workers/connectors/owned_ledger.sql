-- What a database of yours needs to be an `owned_write` sink: install once, with the owner of your tables.
-- Then replace countersign.perform() and countersign.money() by your own. Docs: docs/owned-write.md
--
-- Key, fingerprint, token and change commit together or not at all, so a repeat is answered from the stored result, and
-- a worker whose grant is over is refused here, at the place where the effect becomes real.

CREATE SCHEMA IF NOT EXISTS countersign;

-- What this database calls itself. A tool that names it sends nothing to another one. A copy of the database has the same
-- name until it is given one of its own: UPDATE countersign.sink SET id = DEFAULT.
CREATE TABLE IF NOT EXISTS countersign.sink (
    id         uuid NOT NULL DEFAULT gen_random_uuid(),
    is_the_one boolean PRIMARY KEY DEFAULT true CHECK (is_the_one)
);
INSERT INTO countersign.sink DEFAULT VALUES ON CONFLICT DO NOTHING;
CREATE OR REPLACE FUNCTION countersign.identity() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT id::text FROM countersign.sink;
$$;

CREATE TABLE IF NOT EXISTS countersign.fence (
    resource text PRIMARY KEY,
    token    bigint NOT NULL          -- the highest ever seen for this resource; never falls
);

CREATE TABLE IF NOT EXISTS countersign.effect (
    key         text PRIMARY KEY,     -- the idempotency key: one approved intent
    fingerprint text NOT NULL,        -- of its material content
    resource    text NOT NULL,
    token       bigint NOT NULL,      -- the grant under which it happened
    reference   text NOT NULL,        -- what your change calls itself
    happened_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS effects_by_time ON countersign.effect (happened_at, key);

-- The change itself, and the first thing to replace: makes it and returns its reference. What it refuses it RAISEs
-- (SQLSTATE P0001) or leaves to your constraints: refused, nothing changed, and the reason is shown to people.
CREATE TABLE IF NOT EXISTS countersign.refund (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key          text NOT NULL,
    order_ref    text NOT NULL,
    amount_minor bigint NOT NULL CHECK (amount_minor > 0),
    currency     text NOT NULL CHECK (currency ~ '^[A-Z]{3}$')
);
CREATE INDEX IF NOT EXISTS refunds_by_key ON countersign.refund (key);
CREATE OR REPLACE FUNCTION countersign.perform(key text, request jsonb) RETURNS text LANGUAGE sql AS $$
    INSERT INTO countersign.refund (key, order_ref, amount_minor, currency)
    VALUES (key, request->>'order', (request->>'amount')::bigint, request->>'currency')
    RETURNING 'refund-' || id;
$$;

-- The other thing to replace: what the change moved, from your own rows and not from the request, in minor units. At
-- most one row; none where it moves no money. The ledger is held against it.
CREATE OR REPLACE FUNCTION countersign.money(of_key text) RETURNS TABLE (amount_minor bigint, currency text)
LANGUAGE sql STABLE AS $$
    SELECT r.amount_minor, r.currency FROM countersign.refund r WHERE r.key = of_key;
$$;

-- Applies, replays or refuses each request; one row an answer. Call it autocommitted: its answer is then a fact.
--   applied  it happened now            replayed  it had happened before, under this key
--   conflict the key stands for other content: nothing done       fenced  a higher token was seen: nothing done
--   refused  the change said no: nothing done                     absent  (look_up only) it has not happened
CREATE OR REPLACE FUNCTION countersign.apply(
    keys text[], fingerprints text[], resources text[], tokens bigint[], requests jsonb[]
) RETURNS TABLE (key text, verdict text, reference text, token bigint, detail text) LANGUAGE plpgsql AS $$
DECLARE
    i integer;
    held bigint;
    known countersign.effect;
BEGIN
    -- In the resources' order, so that two batches never wait for each other in a ring.
    FOR i IN SELECT n FROM generate_subscripts(keys, 1) n ORDER BY resources[n], n LOOP
        held := countersign.fence_of(resources[i]);
        SELECT * INTO known FROM countersign.effect e WHERE e.key = keys[i];
        key := keys[i]; reference := known.reference; token := held; detail := NULL;
        IF known.fingerprint <> fingerprints[i] THEN
            verdict := 'conflict'; reference := NULL;
        ELSIF held > tokens[i] THEN
            verdict := 'fenced';
        ELSE
            PERFORM countersign.raise_fence(resources[i], tokens[i]);
            token := coalesce(known.token, tokens[i]);
            IF known.key IS NOT NULL THEN
                verdict := 'replayed';
            ELSE
                BEGIN
                    reference := countersign.perform(keys[i], requests[i]);
                    INSERT INTO countersign.effect (key, fingerprint, resource, token, reference)
                    VALUES (keys[i], fingerprints[i], resources[i], tokens[i], apply.reference);
                    verdict := 'applied';
                EXCEPTION WHEN raise_exception OR integrity_constraint_violation OR data_exception THEN
                    verdict := 'refused'; reference := NULL; detail := SQLERRM;
                END;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Raises the fence to the caller's token and says what is known of the key, in one step: after "absent", no older
-- worker can make it happen any more.
CREATE OR REPLACE FUNCTION countersign.look_up(
    keys text[], fingerprints text[], resources text[], tokens bigint[]
) RETURNS TABLE (key text, verdict text, reference text, token bigint, detail text) LANGUAGE plpgsql AS $$
DECLARE
    i integer;
    held bigint;
    known countersign.effect;
BEGIN
    FOR i IN SELECT n FROM generate_subscripts(keys, 1) n ORDER BY resources[n], n LOOP
        held := countersign.fence_of(resources[i]);
        SELECT * INTO known FROM countersign.effect e WHERE e.key = keys[i];
        key := keys[i]; reference := known.reference; detail := NULL;
        IF known.fingerprint <> fingerprints[i] THEN
            verdict := 'conflict'; token := held;
        ELSIF held > tokens[i] THEN
            verdict := 'fenced'; token := held;
        ELSE
            PERFORM countersign.raise_fence(resources[i], tokens[i]);
            verdict := CASE WHEN known.key IS NULL THEN 'absent' ELSE 'replayed' END;
            token := coalesce(known.token, tokens[i]);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- The fence, locked until the call commits: everything about one resource happens one after the other.
CREATE OR REPLACE FUNCTION countersign.fence_of(of_resource text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    held bigint;
BEGIN
    INSERT INTO countersign.fence (resource, token) VALUES (of_resource, 0) ON CONFLICT DO NOTHING;
    SELECT f.token INTO held FROM countersign.fence f WHERE f.resource = of_resource FOR UPDATE;
    RETURN held;
END $$;

CREATE OR REPLACE FUNCTION countersign.raise_fence(of_resource text, to_token bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE countersign.fence SET token = to_token WHERE resource = of_resource AND token < to_token;
$$;

-- What has happened in a time, oldest first, a page at a time; `after` is the last key of the page before, or NULL. The
-- ledger is held against it. A row's time is that of its writing, so ask only for what is older than your longest call.
DROP FUNCTION IF EXISTS countersign.effects(timestamptz, timestamptz, text, integer);  -- it once told no money
CREATE FUNCTION countersign.effects(
    since timestamptz, until timestamptz, after text, most integer
) RETURNS TABLE (
    key text, reference text, resource text, happened_at timestamptz, amount_minor bigint, currency text
) LANGUAGE sql STABLE AS $$
    SELECT e.key, e.reference, e.resource, e.happened_at, m.amount_minor, m.currency FROM countersign.effect e
    LEFT JOIN LATERAL (SELECT * FROM countersign.money(e.key) LIMIT 1) m ON true
    WHERE e.happened_at BETWEEN since AND until
      AND (after IS NULL OR (e.happened_at, e.key) > (SELECT a.happened_at, a.key FROM countersign.effect a WHERE a.key = after))
    ORDER BY e.happened_at, e.key LIMIT most;
$$;

-- The highest token of every resource, in the order of their names, a page at a time; `after` is the last name of the
-- page before, or ''. A ledger that was restored from a backup raises its own above these before it sends anything.
CREATE OR REPLACE FUNCTION countersign.fences(after text, most integer)
RETURNS TABLE (resource text, token bigint) LANGUAGE sql STABLE AS $$
    SELECT f.resource, f.token FROM countersign.fence f
    WHERE f.resource COLLATE "C" > after COLLATE "C" ORDER BY f.resource COLLATE "C" LIMIT most;
$$;
