"""Clients that left are counted apart; windows without any request are rolled up too."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0002_tables")]
    operations = [
        run_sql_file(__file__, "clients_left.sql"),
        run_sql_file(__file__, "record.sql"),
        run_sql_file(__file__, "rollups.sql"),
    ]
