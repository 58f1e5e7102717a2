"""Marks of what has changed in the configuration, so that gateways read that alone."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("core", "0006_kept_rights")]
    operations = [run_sql_file(__file__, "config_marks.sql")]
