"""Capacity worksheets that are kept."""

import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models


class Migration(migrations.Migration):
    dependencies = [("insights", "0002_clients")]

    operations = [
        migrations.CreateModel(
            name="WorksheetRevision",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=controlplane.core.models.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("pool", models.CharField(max_length=50)),
                ("quarter", models.CharField(max_length=7)),
                ("by", models.CharField(max_length=300)),
                ("note", models.CharField(blank=True, default="", max_length=300)),
                ("figures", models.JSONField()),
                ("sheet", models.JSONField()),
            ],
            options={
                "db_table": "worksheet_revisions",
                "indexes": [models.Index(fields=["pool", "-id"], name="worksheet_newest_first")],
            },
        ),
        migrations.RunSQL("GRANT SELECT, INSERT ON worksheet_revisions TO sluice_app"),
    ]
