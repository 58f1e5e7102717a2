"""Gateways read the published rules, and those on trial, from the versions' JSON."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("blueprint", "0002_config_snapshot_shares"),
        ("routing", "0004_version_guards"),
    ]
    operations = [run_sql_file(__file__, "config_snapshot.sql")]
