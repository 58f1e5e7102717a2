"""Gateways read what has changed since the number that they have, and no longer everything."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("blueprint", "0011_config_snapshot_holds"),
        ("core", "0007_config_marks"),
        ("tenants", "0010_ended_keys"),
    ]
    operations = [
        run_sql_file(__file__, "config_snapshot.sql"),
        run_sql_file(__file__, "config_rows.sql"),
    ]
