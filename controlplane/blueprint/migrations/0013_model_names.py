"""Gateways learn the names of all models, also of those that are out of service."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("blueprint", "0012_config_changes")]
    operations = [run_sql_file(__file__, "config_snapshot.sql")]
