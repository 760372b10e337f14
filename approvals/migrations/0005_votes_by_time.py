"""Who decided when: how long decisions take is counted without reading those of a year."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("approvals", "0004_compensations")]

    operations = [
        migrations.AddIndex(
            model_name="vote", index=models.Index(name="votes_of_a_reviewer", fields=["reviewer", "at"])
        )
    ]
