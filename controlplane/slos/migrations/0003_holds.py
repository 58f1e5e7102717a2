"""Priorities that are kept out, for how long, and how long at most without a renewal."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("slos", "0002_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="Hold",
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
                ("organization", models.UUIDField()),
                ("since", models.DateTimeField()),
                ("least", models.DurationField()),
                ("well_since", models.DateTimeField(blank=True, null=True)),
                ("until", models.DateTimeField()),
                ("released_at", models.DateTimeField(blank=True, null=True)),
                (
                    "objective",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="holds",
                        to="slos.objective",
                    ),
                ),
            ],
            options={
                "db_table": "slo_holds",
                "indexes": [models.Index(fields=["objective", "-since"], name="hold_newest_first")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("released_at", None)),
                        fields=("objective",),
                        name="objective_holds_once",
                    )
                ],
            },
        ),
        run_sql_file(__file__, "holds.sql"),
    ]
