from django.db import migrations

from ledger.triggers import REFUSE


class Migration(migrations.Migration):
    """The function every refusing trigger calls; it comes before the tables that carry them."""

    initial = True
    dependencies = []
    operations = [migrations.RunSQL(REFUSE, "DROP FUNCTION refuse()")]
