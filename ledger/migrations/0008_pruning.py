"""Pruning: content is emptied past its horizon, by one function; keys, digests, states and references stay."""

import django.db.models.deletion
import django.db.models.functions.datetime
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

FUNCTIONS = """
-- How long a tool's content is kept once it is settled: by its newest version; in an erasure, as long as it may be retried.
CREATE FUNCTION ledger_horizon(of_tool bigint, erasing boolean) RETURNS interval LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN erasing THEN retry_horizon ELSE retention END
    FROM ledger_toolversion WHERE tool_id = of_tool ORDER BY number DESC LIMIT 1;
$$;

-- Which of the operations may be emptied now: settled, nothing open about them, and past their horizon. The horizon of
-- the version they were approved under holds, too: the sink may still keep the key.
CREATE FUNCTION ledger_prunable(orders bigint[], erasing boolean) RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
    SELECT o.order_id
    FROM ledger_operation o
    JOIN ledger_order d ON d.id = o.order_id
    JOIN ledger_toolversion v ON v.id = d.tool_version_id
    WHERE o.order_id = ANY(orders) AND o.state IN ('committed', 'failed_before_commit')
      AND o.settled_at + greatest(ledger_horizon(o.tool_id, erasing), v.retry_horizon) <= clock_timestamp()
      AND NOT EXISTS (SELECT FROM ledger_finding f WHERE f.operation_id = o.order_id AND f.closed_at IS NULL)
      AND NOT EXISTS (SELECT FROM ledger_finding f WHERE f.subject = d.subject AND f.closed_at IS NULL);
$$;

CREATE FUNCTION refuse_early_pruning() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM ledger_prunable(ARRAY[NEW.operation_id], NEW.is_erasure)) THEN
        RAISE check_violation USING CONSTRAINT = TG_ARGV[0], TABLE = TG_TABLE_NAME,
            MESSAGE = format('operation %s is not to be pruned yet: %s', NEW.operation_id, TG_ARGV[0]);
    END IF;
    RETURN NEW;
END $$;

-- Lets the one update pass that only empties content, of a row whose pruning is written; refuses every other change.
-- Arguments: the rule's name; what content becomes; the table of prunings, its column, our column that it names.
CREATE FUNCTION unless_pruned() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    emptied jsonb := TG_ARGV[1];
    before jsonb := to_jsonb(OLD);
    after jsonb;
    pruned boolean := false;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        after := to_jsonb(NEW);
        IF before || emptied = after || emptied AND NOT EXISTS (
            SELECT FROM jsonb_each(emptied) c WHERE after->c.key NOT IN (before->c.key, c.value)
        ) THEN
            EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE %I = $1)', TG_ARGV[2], TG_ARGV[3])
            INTO pruned USING (before->>TG_ARGV[4])::bigint;
            -- An event that matched nothing has no operation to be pruned with.
            IF TG_TABLE_NAME = 'ledger_inboundevent' AND before->>'operation_id' IS NULL THEN
                pruned := (before->>'received_at')::timestamptz
                    + ledger_horizon((before->>'tool_id')::bigint, false) <= clock_timestamp();
            END IF;
        END IF;
    END IF;
    IF NOT pruned THEN
        RAISE check_violation USING CONSTRAINT = TG_ARGV[0], TABLE = TG_TABLE_NAME,
            MESSAGE = format('%s on %I is refused: %s', TG_OP, TG_TABLE_NAME, TG_ARGV[0]);
    END IF;
    RETURN NEW;
END $$;

-- The one way content leaves the ledger. Keys, digests, fingerprints, states, references, amounts and times stay, and
-- the unique indexes on them go on refusing. Idempotent: what came in after a first pruning is emptied by a second.
CREATE FUNCTION ledger_prune(orders bigint[], by_whom text, why text, erasing boolean)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    new integer;
BEGIN
    PERFORM FROM ledger_operation WHERE order_id = ANY(orders) ORDER BY order_id FOR NO KEY UPDATE;
    INSERT INTO ledger_pruning (operation_id, by, because, is_erasure)
    SELECT order_id, by_whom, why, erasing FROM unnest(orders) AS named (order_id)
    WHERE NOT EXISTS (SELECT FROM ledger_pruning p WHERE p.operation_id = named.order_id)
    ORDER BY order_id;
    GET DIAGNOSTICS new = ROW_COUNT;
    UPDATE ledger_order SET body = '{}' WHERE id = ANY(orders) AND body <> '{}';
    UPDATE ledger_attempt SET receipt = CASE WHEN receipt IS NOT NULL THEN '{}' END, note = NULL
    WHERE operation_id = ANY(orders) AND ended_at IS NOT NULL AND (receipt <> '{}' OR note IS NOT NULL);
    UPDATE ledger_evidence SET receipt = NULL, note = NULL
    WHERE operation_id = ANY(orders) AND (receipt IS NOT NULL OR note IS NOT NULL);
    UPDATE ledger_attestation SET evidence = '' WHERE operation_id = ANY(orders) AND evidence <> '';
    UPDATE ledger_inboundevent SET body = '' WHERE operation_id = ANY(orders) AND body <> '';
    RETURN new;
END $$;

-- Events that matched nothing, past their tool's retention.
CREATE FUNCTION ledger_prune_events(most integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    emptied integer;
BEGIN
    UPDATE ledger_inboundevent SET body = '' WHERE id = ANY(ARRAY(
        SELECT id FROM ledger_inboundevent
        WHERE operation_id IS NULL AND body <> '' AND received_at + ledger_horizon(tool_id, false) <= clock_timestamp()
        ORDER BY id LIMIT most
    ));
    GET DIAGNOSTICS emptied = ROW_COUNT;
    RETURN emptied;
END $$;

-- Whether the ledger keeps nothing more of a subject than its tombstones, and nothing about it is open.
CREATE FUNCTION ledger_has_let_go(of_subject bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (
        SELECT FROM ledger_order d
        WHERE d.subject = of_subject AND NOT EXISTS (SELECT FROM ledger_pruning p WHERE p.operation_id = d.id)
    ) AND NOT EXISTS (SELECT FROM ledger_finding f WHERE f.subject = of_subject AND f.closed_at IS NULL);
$$;
"""
FORGET = """
DROP FUNCTION ledger_has_let_go(bigint);
DROP FUNCTION ledger_prune_events(integer);
DROP FUNCTION ledger_prune(bigint[], text, text, boolean);
DROP FUNCTION unless_pruned();
DROP FUNCTION refuse_early_pruning();
DROP FUNCTION ledger_prunable(bigint[], boolean);
DROP FUNCTION ledger_horizon(bigint, boolean);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0007_settled"),
    ]

    operations = [
        migrations.CreateModel(
            name="Pruning",
            fields=[
                (
                    "operation",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="pruning",
                        serialize=False,
                        to="ledger.operation",
                    ),
                ),
                ("by", models.CharField(help_text="person:…, or retention", max_length=120)),
                ("because", models.CharField(max_length=300)),
                ("is_erasure", models.BooleanField(default=False)),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Sighting",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "reconciliation_id",
                        "operation_id",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "operation",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="ledger.operation",
                    ),
                ),
                (
                    "reconciliation",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sightings",
                        to="ledger.reconciliation",
                    ),
                ),
            ],
        ),
        migrations.RunSQL(FUNCTIONS, FORGET),
        pgtrigger.migrations.RemoveTrigger(
            model_name="attempt",
            name="attempts_close_once",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="attestation",
            name="attestation_rows_are_insert_only",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="evidence",
            name="evidence_rows_are_insert_only",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="inboundevent",
            name="inbound_events_are_stored_as_they_came",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="order",
            name="order_rows_are_insert_only",
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="attempt",
            trigger=pgtrigger.compiler.Trigger(
                name="attempts_close_once",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition='WHEN (OLD."ended_at" IS NOT NULL)',
                    execute="unless_pruned('attempts_close_once', '{\"receipt\": \"{}\", \"note\": null}', 'ledger_pruning', 'operation_id', 'operation_id')",
                    func="RETURN NULL;",
                    hash="4b612d7c03ed5c985e10bd8d9acdd0cd70436523",
                    operation="UPDATE",
                    pgid="pgtrigger_attempts_close_once_90d0c",
                    table="ledger_attempt",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="attestation",
            trigger=pgtrigger.compiler.Trigger(
                name="attestation_rows_are_insert_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    execute="unless_pruned('attestation_rows_are_insert_only', '{\"evidence\": \"\"}', 'ledger_pruning', 'operation_id', 'operation_id')",
                    func="RETURN NULL;",
                    hash="ecda4faebed76aae49d63f6d16d239caf4d9e12a",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_attestation_rows_are_insert_only_aeb6c",
                    table="ledger_attestation",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="evidence",
            trigger=pgtrigger.compiler.Trigger(
                name="evidence_rows_are_insert_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    execute="unless_pruned('evidence_rows_are_insert_only', '{\"receipt\": null, \"note\": null}', 'ledger_pruning', 'operation_id', 'operation_id')",
                    func="RETURN NULL;",
                    hash="6087745d694381e219c4129dc567786fa7c5348a",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_evidence_rows_are_insert_only_1af04",
                    table="ledger_evidence",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="inboundevent",
            trigger=pgtrigger.compiler.Trigger(
                name="inbound_events_are_stored_as_they_came",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    condition="WHEN (ROW(OLD.tenant_id, OLD.tool_id, OLD.event_id, OLD.kind, OLD.body, OLD.received_at) IS DISTINCT FROM ROW(NEW.tenant_id, NEW.tool_id, NEW.event_id, NEW.kind, NEW.body, NEW.received_at))",
                    execute="unless_pruned('inbound_events_are_stored_as_they_came', '{\"body\": \"\"}', 'ledger_pruning', 'operation_id', 'operation_id')",
                    func="RETURN NULL;",
                    hash="ae7fcfc4aaaa54640fc872210064667307255036",
                    operation="UPDATE",
                    pgid="pgtrigger_inbound_events_are_stored_as_they_came_a2829",
                    table="ledger_inboundevent",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="order",
            trigger=pgtrigger.compiler.Trigger(
                name="order_rows_are_insert_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    execute="unless_pruned('order_rows_are_insert_only', '{\"body\": \"{}\"}', 'ledger_pruning', 'operation_id', 'id')",
                    func="RETURN NULL;",
                    hash="8006212e034e63c7c5868570548d93351eaed479",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_order_rows_are_insert_only_fbc4a",
                    table="ledger_order",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="pruning",
            trigger=pgtrigger.compiler.Trigger(
                name="pruning_rows_are_insert_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    execute="refuse('pruning_rows_are_insert_only')",
                    func="RETURN NULL;",
                    hash="558a484fd4da156c087374829302ca6565e15c74",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_pruning_rows_are_insert_only_e7964",
                    table="ledger_pruning",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="pruning",
            trigger=pgtrigger.compiler.Trigger(
                name="pruning_is_never_truncated",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    execute="refuse('pruning_is_never_truncated')",
                    func="RETURN NULL;",
                    hash="710f9c817711bf5d3b33ad42c78fcfb5818d569b",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_pruning_is_never_truncated_5aebe",
                    table="ledger_pruning",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="pruning",
            trigger=pgtrigger.compiler.Trigger(
                name="pruned_only_past_the_horizon",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    execute="refuse_early_pruning('pruned_only_past_the_horizon')",
                    func="RETURN NULL;",
                    hash="7d850092d3f4da737e2bde73b0b12d282954156a",
                    operation="INSERT",
                    pgid="pgtrigger_pruned_only_past_the_horizon_debc2",
                    table="ledger_pruning",
                    when="BEFORE",
                ),
            ),
        ),
    ]
