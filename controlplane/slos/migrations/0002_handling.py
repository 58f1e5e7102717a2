"""Handling alerts: acknowledged, assigned, silenced; test messages; owners of duties of stages."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("slos", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="alert",
            name="acknowledged_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="alert",
            name="acknowledged_by",
            field=models.CharField(db_default="", default="", max_length=300),
        ),
        migrations.AddField(
            model_name="alert",
            name="assignee",
            field=models.EmailField(blank=True, db_default="", default="", max_length=254),
        ),
        migrations.AddField(
            model_name="alert",
            name="muted",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AlterField(
            model_name="delivery",
            name="alert",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="deliveries",
                to="slos.alert",
            ),
        ),
        migrations.CreateModel(
            name="DutyOwner",
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
                ("stage", models.CharField(max_length=40)),
                (
                    "duty",
                    models.CharField(
                        choices=[
                            ("telemetry", "Telemetry"),
                            ("limits", "Limits"),
                            ("routing", "Routing"),
                            ("index", "Index"),
                        ],
                        max_length=9,
                    ),
                ),
                ("team", models.CharField(blank=True, max_length=100)),
                ("email", models.EmailField(blank=True, default="", max_length=254)),
                ("begins", models.DateField()),
            ],
            options={
                "db_table": "slo_duty_owners",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("stage", "duty", "begins"), name="duty_once_a_day"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("duty__in", ["telemetry", "limits", "routing", "index"])
                        ),
                        name="duty_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Silence",
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
                ("until", models.DateTimeField()),
                ("by", models.CharField(max_length=300)),
                ("reason", models.CharField(blank=True, default="", max_length=500)),
                (
                    "objective",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="silences",
                        to="slos.objective",
                    ),
                ),
            ],
            options={
                "db_table": "slo_silences",
                "indexes": [
                    models.Index(fields=["objective", "-until"], name="silence_last_first")
                ],
            },
        ),
        run_sql_file(__file__, "handling.sql"),
    ]
