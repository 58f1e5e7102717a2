"""Tables of insights."""

import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="HygieneHour",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "hour",
                        "organization",
                        "project",
                        "key",
                        "model",
                        "kind",
                        "writer",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("writer", models.UUIDField()),
                ("organization", models.UUIDField()),
                ("project", models.UUIDField()),
                ("key", models.UUIDField()),
                ("model", models.TextField()),
                ("kind", models.TextField()),
                ("requests", models.BigIntegerField()),
                ("tokens", models.BigIntegerField()),
                ("nano", models.BigIntegerField()),
            ],
            options={
                "db_table": "hygiene_hours",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Comparison",
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
                ("setup", models.JSONField()),
                ("ways", models.JSONField()),
            ],
            options={
                "db_table": "comparisons",
                "ordering": ["-id"],
            },
        ),
        run_sql_file(__file__, "tables.sql"),
    ]
