"""Tables of contents."""

import django.contrib.postgres.fields
from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    initial = True

    dependencies = [("tenants", "0005_kept_contents"), ("telemetry", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="KeptContentRow",
            fields=[
                ("request", models.UUIDField(primary_key=True, serialize=False)),
                ("organization", models.UUIDField()),
                ("project", models.UUIDField()),
                (
                    "terms",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
                ("sealed", models.BinaryField()),
            ],
            options={"db_table": "kept_contents", "managed": False},
        ),
        run_sql_file(__file__, "tables.sql"),
    ]
