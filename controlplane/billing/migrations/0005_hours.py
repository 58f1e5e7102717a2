"""What was charged by the hour, summed by the seal; what is sealed already is summed here."""

from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_wallets")]
    operations = [
        run_sql_file(__file__, "hours.sql"),
        run_sql_file(__file__, "hours_functions.sql"),
        run_sql_file(__file__, "jobs.sql"),
        run_sql_file(__file__, "functions_access.sql"),
        run_sql_file(__file__, "hours_fill.sql"),
        migrations.CreateModel(
            name="LedgerHour",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "organization",
                        "hour",
                        "project",
                        "key",
                        "model",
                        "price_version",
                        "input_pico",
                        "cached_pico",
                        "output_pico",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("organization", models.UUIDField()),
                ("hour", models.DateTimeField()),
                ("project", models.UUIDField()),
                ("key", models.UUIDField()),
                ("model", models.TextField()),
                ("price_version", models.IntegerField()),
                ("input_pico", models.BigIntegerField()),
                ("cached_pico", models.BigIntegerField()),
                ("output_pico", models.BigIntegerField()),
                ("requests", models.BigIntegerField()),
                ("uncached", models.BigIntegerField()),
                ("cached", models.BigIntegerField()),
                ("output", models.BigIntegerField()),
                ("nano", models.BigIntegerField()),
            ],
            options={
                "db_table": "ledger_hours",
                "managed": False,
            },
        ),
    ]
