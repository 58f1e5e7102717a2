"""Exports: the files that were asked for, how far they are written, and what came of them."""

import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0006_closes"),
    ]

    operations = [
        migrations.CreateModel(
            name="Export",
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
                ("organization_id", models.UUIDField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("usage", "Usage"),
                            ("detail", "Requests"),
                            ("focus", "FOCUS"),
                            ("journal", "Journal"),
                        ],
                        max_length=7,
                    ),
                ),
                (
                    "grain",
                    models.CharField(
                        choices=[("hour", "Hour"), ("day", "Day"), ("entry", "Each line")],
                        max_length=5,
                    ),
                ),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                ("raw", models.BooleanField(default=False)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("running", "Running"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("gone", "Removed"),
                        ],
                        default="waiting",
                        max_length=7,
                    ),
                ),
                ("through", models.DateTimeField(null=True)),
                ("rows_estimated", models.BigIntegerField(null=True)),
                ("rows_done", models.BigIntegerField(default=0)),
                ("bytes_done", models.BigIntegerField(default=0)),
                ("permille", models.SmallIntegerField(default=0)),
                ("nano", models.BigIntegerField(default=0)),
                ("cursor", models.CharField(blank=True, default="", max_length=200)),
                ("sha256", models.CharField(blank=True, default="", max_length=64)),
                ("error", models.CharField(blank=True, default="", max_length=300)),
                ("manifest", models.JSONField(null=True)),
                ("tries", models.SmallIntegerField(default=0)),
                ("claim", models.UUIDField(null=True)),
                ("claimed_until", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("created_by_label", models.TextField()),
            ],
            options={
                "db_table": "exports",
                "indexes": [
                    models.Index(fields=["organization_id", "-id"], name="exports_newest_first"),
                    models.Index(
                        condition=models.Q(("state__in", ("waiting", "running"))),
                        fields=["id"],
                        name="exports_at_work",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("end__gt", models.F("start"))),
                        name="export_of_some_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["waiting", "running", "done", "failed", "gone"])
                        ),
                        name="export_state_known",
                    ),
                ],
            },
        ),
        run_sql_file(__file__, "exports.sql"),
    ]
