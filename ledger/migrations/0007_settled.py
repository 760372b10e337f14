"""What was settled when, by tool: a day's outcomes are counted without reading those of a year."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ledger", "0006_halted")]

    operations = [
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(
                name="operations_settled",
                fields=["tool", "settled_at"],
                condition=models.Q(settled_at__isnull=False),
            ),
        )
    ]
