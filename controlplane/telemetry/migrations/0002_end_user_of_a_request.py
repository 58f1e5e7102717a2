"""The end user of a recorded request."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0001_initial")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE request_records ADD COLUMN end_user text NOT NULL DEFAULT ''"
        )
    ]
