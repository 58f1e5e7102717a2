"""What readers think of an answer."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0002_end_user_of_a_request")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE request_records ADD COLUMN rating smallint NOT NULL DEFAULT 0,"
            " ADD COLUMN comment text NOT NULL DEFAULT ''"
        )
    ]
