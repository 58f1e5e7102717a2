"""Tables, policies and functions of telemetry."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0001_initial"), ("core", "0002_guards")]
    operations = [
        run_sql_file(__file__, "partitions.sql"),
        run_sql_file(__file__, "tables.sql"),
        run_sql_file(__file__, "access.sql"),
        run_sql_file(__file__, "record.sql"),
        run_sql_file(__file__, "rollups.sql"),
        run_sql_file(__file__, "functions_access.sql"),
    ]
