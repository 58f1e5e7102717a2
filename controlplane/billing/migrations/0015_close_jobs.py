"""Months that a worker closes."""

import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file

STATES = [
    ("waiting", "Waiting"),
    ("running", "Running"),
    ("done", "Done"),
    ("failed", "Failed"),
]


class Migration(migrations.Migration):
    dependencies = [("billing", "0014_carried_credit")]
    operations = [
        migrations.CreateModel(
            name="PeriodCloseJob",
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
                ("period", models.CharField(max_length=7)),
                ("state", models.CharField(choices=STATES, default="waiting", max_length=7)),
                ("reached_at", models.DateTimeField(null=True)),
                ("error", models.CharField(blank=True, default="", max_length=500)),
                ("tries", models.SmallIntegerField(default=0)),
                ("claim", models.UUIDField(null=True)),
                ("claimed_until", models.DateTimeField(null=True)),
                ("asked_by", models.UUIDField(null=True)),
                ("asked_label", models.TextField()),
            ],
            options={
                "db_table": "period_close_jobs",
                "indexes": [
                    models.Index(fields=["organization", "-id"], name="period_close_newest_first")
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", [name for name, _ in STATES])),
                        name="period_close_state_known",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("state__in", ("waiting", "running"))),
                        fields=("organization", "period"),
                        name="one_close_of_a_period_at_work",
                    ),
                ],
            },
        ),
        run_sql_file(__file__, "close_jobs.sql"),
    ]
