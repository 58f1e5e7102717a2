"""Each gateway looks at its own lines at every turn."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("batches", "0001_initial")]

    operations = [
        migrations.RunSQL(
            "CREATE INDEX batch_lines_running ON batch_lines (gateway)"
            " WHERE gateway IS NOT NULL AND ok IS NULL"
        )
    ]
