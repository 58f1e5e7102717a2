"""Counts of objectives, policies and functions."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("slos", "0001_initial"), ("core", "0002_guards")]
    operations = [run_sql_file(__file__, "counts.sql"), run_sql_file(__file__, "access.sql")]
