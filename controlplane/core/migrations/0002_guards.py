"""Audit is append-only; the configuration has a version."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("core", "0001_initial")]
    operations = [
        run_sql_file(__file__, "audit.sql"),
        run_sql_file(__file__, "config_version.sql"),
    ]
