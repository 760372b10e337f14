"""Pruning: what a case said is emptied past its horizon, by one function; what it was and came to stays."""

import django.db.models.deletion
import django.db.models.functions.datetime
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models

FUNCTIONS = """
-- A case has ended, its content is past the tool's retention (an erasure does not wait for it), and the ledger, which
-- knows what came of it, has let go.
CREATE FUNCTION approvals_prunable(cases bigint[], erasing boolean) RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
    SELECT c.id FROM approvals_case c
    JOIN approvals_revision r ON r.case_id = c.id AND r.number = c.revision
    WHERE c.id = ANY(cases) AND c.state IN ('executed', 'failed', 'rejected', 'withdrawn', 'expired')
      AND (erasing OR r.at + ledger_horizon(c.tool_id, false) <= clock_timestamp())
      AND ledger_has_let_go(c.id);
$$;

CREATE FUNCTION refuse_early_case_pruning() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM approvals_prunable(ARRAY[NEW.case_id], NEW.is_erasure)) OR NOT EXISTS (
        SELECT FROM approvals_revision WHERE case_id = NEW.case_id AND proposal_id = NEW.proposal_id
    ) THEN
        RAISE check_violation USING CONSTRAINT = TG_ARGV[0], TABLE = TG_TABLE_NAME,
            MESSAGE = format('case %s is not to be pruned yet: %s', NEW.case_id, TG_ARGV[0]);
    END IF;
    RETURN NEW;
END $$;

-- The one way content leaves the cases. Facts, fingerprints, digests, verdicts and names stay. The ledger's is first.
CREATE FUNCTION approvals_prune(cases bigint[], by_whom text, why text, erasing boolean)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    new integer;
BEGIN
    INSERT INTO approvals_pruning (proposal_id, case_id, by, because, is_erasure)
    SELECT DISTINCT r.proposal_id, r.case_id, by_whom, why, erasing FROM approvals_revision r
    WHERE r.case_id = ANY(cases) AND NOT EXISTS (SELECT FROM approvals_pruning p WHERE p.proposal_id = r.proposal_id)
    ORDER BY r.proposal_id;
    GET DIAGNOSTICS new = ROW_COUNT;
    UPDATE approvals_proposal SET material = '{"expects":{},"parameters":{}}', rationale = '', evidence = '[]', sentence = ''
    WHERE id = ANY(ARRAY(SELECT proposal_id FROM approvals_pruning WHERE case_id = ANY(cases)))
      AND (material <> '{"expects":{},"parameters":{}}' OR rationale <> '' OR evidence <> '[]' OR sentence <> '');
    UPDATE approvals_revision SET reason = '' WHERE case_id = ANY(cases) AND reason <> '';
    UPDATE approvals_vote SET reason = '' WHERE case_id = ANY(cases) AND reason <> '';
    RETURN new;
END $$;
"""
FORGET = """
DROP FUNCTION approvals_prune(bigint[], text, text, boolean);
DROP FUNCTION refuse_early_case_pruning();
DROP FUNCTION approvals_prunable(bigint[], boolean);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("approvals", "0005_votes_by_time"),
        ("ledger", "0008_pruning"),
    ]

    operations = [
        migrations.RunSQL(FUNCTIONS, FORGET),
        migrations.CreateModel(
            name="Pruning",
            fields=[
                (
                    "proposal",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="pruning",
                        serialize=False,
                        to="approvals.proposal",
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
        pgtrigger.migrations.RemoveTrigger(
            model_name="proposal",
            name="proposal_rows_are_insert_only",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="revision",
            name="revision_rows_are_insert_only",
        ),
        pgtrigger.migrations.RemoveTrigger(
            model_name="vote",
            name="vote_rows_are_insert_only",
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="proposal",
            trigger=pgtrigger.compiler.Trigger(
                name="proposal_rows_are_insert_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    execute='unless_pruned(\'proposal_rows_are_insert_only\', \'{"material": "{\\"expects\\":{},\\"parameters\\":{}}", "rationale": "", "evidence": [], "sentence": ""}\', \'approvals_pruning\', \'proposal_id\', \'id\')',
                    func="RETURN NULL;",
                    hash="b090f787c4576b353d2ec2a248d706b3685f48ad",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_proposal_rows_are_insert_only_fd7e4",
                    table="approvals_proposal",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="revision",
            trigger=pgtrigger.compiler.Trigger(
                name="revision_rows_are_insert_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    execute="unless_pruned('revision_rows_are_insert_only', '{\"reason\": \"\"}', 'approvals_pruning', 'case_id', 'case_id')",
                    func="RETURN NULL;",
                    hash="cee2882dd0a114fdde2a49fa88078f12bc47f6dd",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_revision_rows_are_insert_only_b6b32",
                    table="approvals_revision",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="vote",
            trigger=pgtrigger.compiler.Trigger(
                name="vote_rows_are_insert_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    execute="unless_pruned('vote_rows_are_insert_only', '{\"reason\": \"\"}', 'approvals_pruning', 'case_id', 'case_id')",
                    func="RETURN NULL;",
                    hash="adc8245fb42047283262526c6d937ac585927c3d",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_vote_rows_are_insert_only_9f403",
                    table="approvals_vote",
                    when="BEFORE",
                ),
            ),
        ),
        migrations.AddField(
            model_name="pruning",
            name="case",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="prunings", to="approvals.case"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="pruning",
            trigger=pgtrigger.compiler.Trigger(
                name="pruning_rows_are_insert_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    execute="refuse('pruning_rows_are_insert_only')",
                    func="RETURN NULL;",
                    hash="56aec8f4babae597eebba137a5a66b44c41eae63",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_pruning_rows_are_insert_only_ea9e2",
                    table="approvals_pruning",
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
                    hash="2e175e6e7aa500b664ba9ed65f2b8b76b6bfc264",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_pruning_is_never_truncated_0490f",
                    table="approvals_pruning",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="pruning",
            trigger=pgtrigger.compiler.Trigger(
                name="cases_are_pruned_only_once_they_have_ended",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    execute="refuse_early_case_pruning('cases_are_pruned_only_once_they_have_ended')",
                    func="RETURN NULL;",
                    hash="5b8abd8a8a784a85fa5768dc7ae69ad93e9f8638",
                    operation="INSERT",
                    pgid="pgtrigger_cases_are_pruned_only_once_they_have_ended_72490",
                    table="approvals_pruning",
                    when="BEFORE",
                ),
            ),
        ),
    ]
