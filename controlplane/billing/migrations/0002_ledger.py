"""Tables, triggers, functions and policies of the ledger."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0001_initial"),
        ("core", "0002_guards"),
        ("telemetry", "0002_tables"),
    ]
    operations = [
        run_sql_file(__file__, "tables.sql"),
        run_sql_file(__file__, "partitions.sql"),
        run_sql_file(__file__, "hold.sql"),
        run_sql_file(__file__, "settle.sql"),
        run_sql_file(__file__, "jobs.sql"),
        run_sql_file(__file__, "access.sql"),
        run_sql_file(__file__, "functions_access.sql"),
    ]
