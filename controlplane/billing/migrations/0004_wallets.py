"""Prepaid wallets, the journal of all that is no request, terms of budgets."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("billing", "0007_invoices")]
    operations = [
        run_sql_file(__file__, "wallets.sql"),
        run_sql_file(__file__, "journal.sql"),
        run_sql_file(__file__, "hold.sql"),
        run_sql_file(__file__, "settle.sql"),
        run_sql_file(__file__, "jobs.sql"),
        run_sql_file(__file__, "journal_functions.sql"),
        run_sql_file(__file__, "functions_access.sql"),
        migrations.CreateModel(
            name="BudgetTerms",
            fields=[
                (
                    "budget",
                    models.OneToOneField(
                        db_column="budget",
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="terms",
                        serialize=False,
                        to="billing.budget",
                    ),
                ),
                ("organization", models.UUIDField()),
                ("allowance", models.BigIntegerField()),
                ("carried", models.BigIntegerField(default=0)),
                ("given", models.BigIntegerField(default=0)),
                ("base", models.BigIntegerField(default=0)),
                ("began_at", models.DateTimeField()),
                ("turns_at", models.DateTimeField(null=True)),
                ("rollover", models.BooleanField(default=False)),
                (
                    "period",
                    models.TextField(
                        choices=[
                            ("none", "None"),
                            ("day", "Day"),
                            ("week", "Week"),
                            ("month", "Month"),
                        ],
                        default="none",
                    ),
                ),
                ("zone", models.TextField(default="UTC")),
                (
                    "alerts",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.SmallIntegerField(), default=list, size=None
                    ),
                ),
            ],
            options={
                "db_table": "budget_terms",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="JournalEntry",
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
                ("organization", models.UUIDField()),
                (
                    "kind",
                    models.TextField(
                        choices=[
                            ("topup", "Topup"),
                            ("credit", "Credit"),
                            ("adjustment", "Adjustment"),
                            ("reversal", "Reversal"),
                            ("invoice_rounding", "Invoice Rounding"),
                            ("tax", "Tax"),
                            ("payment", "Payment"),
                            ("writeoff", "Writeoff"),
                            ("cogs", "Cogs"),
                        ]
                    ),
                ),
                ("debit", models.TextField()),
                ("credit", models.TextField()),
                ("amount", models.BigIntegerField()),
                ("reason", models.TextField()),
                ("reference", models.TextField()),
                ("reverses", models.UUIDField(null=True)),
                ("idempotency", models.TextField()),
                ("actor_label", models.TextField()),
                ("approved_by", models.TextField()),
                ("booked_at", models.DateTimeField()),
                ("payload_hash", models.BinaryField()),
            ],
            options={
                "db_table": "journal_entries",
                "ordering": ["booked_at", "id"],
                "managed": False,
            },
        ),
    ]
