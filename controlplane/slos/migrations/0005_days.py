"""Counts by days, for months that are over."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("slos", "0004_sealed")]
    operations = [run_sql_file(__file__, "days.sql")]
