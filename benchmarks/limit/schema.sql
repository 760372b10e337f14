-- The least that still does the protocol: a case moved by compare-and-swap, a fence per resource, an operation under a
-- unique key, an attempt, and a ledger of one's own for the scripts that write the effect in the same transaction.
-- Give it :rows cases. States: 1 approved, 2 executing, 3 executed.
CREATE TABLE cases (
    id bigint PRIMARY KEY, version int NOT NULL, state smallint NOT NULL, resource int NOT NULL
) WITH (fillfactor = 70);
CREATE TABLE fence (resource int PRIMARY KEY, token bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE operation (
    key uuid PRIMARY KEY, case_id bigint NOT NULL, fingerprint bytea NOT NULL, token bigint NOT NULL,
    state smallint NOT NULL, reference text, created_at timestamptz NOT NULL DEFAULT now(), settled_at timestamptz
) WITH (fillfactor = 75);
CREATE TABLE attempt (
    key uuid, number smallint, started_at timestamptz NOT NULL, ended_at timestamptz, outcome smallint,
    PRIMARY KEY (key, number)
) WITH (fillfactor = 75);
CREATE TABLE effect (
    key uuid PRIMARY KEY, token bigint NOT NULL, resource int NOT NULL, amount bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO cases SELECT n, 7, 1, n % 1000 FROM generate_series(0, :rows - 1) n;
INSERT INTO fence SELECT n, 0 FROM generate_series(0, 999) n;
VACUUM ANALYZE cases;
VACUUM ANALYZE fence;
CHECKPOINT;
