"""Budgets by the calendar, closed months, and what reconciliation finds."""

from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("billing", "0005_hours")]
    operations = [
        run_sql_file(__file__, "closes.sql"),
        run_sql_file(__file__, "close_functions.sql"),
        run_sql_file(__file__, "budget_functions.sql"),
        run_sql_file(__file__, "functions_access.sql"),
        migrations.CreateModel(
            name="PeriodClose",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("organization", models.UUIDField()),
                ("period", models.TextField()),
                ("begins", models.DateTimeField()),
                ("ends", models.DateTimeField()),
                ("transfers", models.BigIntegerField()),
                ("entries", models.BigIntegerField()),
                ("totals", models.JSONField()),
                ("last_booked_at", models.DateTimeField(null=True)),
                ("digest", models.BinaryField()),
                ("reconciliation", models.UUIDField()),
                ("closed_by", models.TextField()),
                ("closed_at", models.DateTimeField()),
            ],
            options={
                "db_table": "period_closes",
                "ordering": ["-period"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Reconciliation",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("organization", models.UUIDField()),
                ("begins", models.DateTimeField()),
                ("ends", models.DateTimeField()),
                ("made_at", models.DateTimeField()),
                ("requests", models.BigIntegerField()),
                ("findings", models.BigIntegerField()),
                ("unaccounted_tokens", models.BigIntegerField()),
                ("unaccounted_nano", models.BigIntegerField()),
                ("examples", models.JSONField()),
            ],
            options={
                "db_table": "reconciliations",
                "ordering": ["-made_at"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="BudgetAlert",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "budget",
                        "began_at",
                        "percent",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("budget", models.UUIDField()),
                ("began_at", models.DateTimeField()),
                ("percent", models.SmallIntegerField()),
                ("organization", models.UUIDField()),
                ("spent", models.BigIntegerField()),
                ("allowance", models.BigIntegerField()),
                ("raised_at", models.DateTimeField()),
            ],
            options={
                "db_table": "budget_alerts",
                "ordering": ["-raised_at"],
                "managed": False,
            },
        ),
    ]
