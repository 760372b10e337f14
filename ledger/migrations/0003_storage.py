from django.db import migrations

STORAGE = """
-- Room on the page for the versions a row goes through, so that an update stays beside its old row.
ALTER TABLE ledger_operation SET (fillfactor = 60);
ALTER TABLE ledger_attempt SET (fillfactor = 70);
ALTER TABLE ledger_resource SET (fillfactor = 50);
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0002_tables")]
    operations = [migrations.RunSQL(STORAGE, migrations.RunSQL.noop)]
