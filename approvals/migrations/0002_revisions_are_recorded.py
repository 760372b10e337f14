from django.db import migrations

RECORDED = """
-- Checked at COMMIT: a case's revision has its row, whoever wrote the case.
ALTER TABLE approvals_case ADD CONSTRAINT case_revision_is_recorded
    FOREIGN KEY (id, revision) REFERENCES approvals_revision (case_id, number) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE approvals_case SET (fillfactor = 60);
"""
BACK = "ALTER TABLE approvals_case DROP CONSTRAINT case_revision_is_recorded;"


class Migration(migrations.Migration):
    dependencies = [("approvals", "0001_initial")]
    operations = [migrations.RunSQL(RECORDED, BACK)]
