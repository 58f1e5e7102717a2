"""Rules never change; grants and configuration trigger."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("routing", "0001_initial"), ("core", "0002_guards")]
    operations = [run_sql_file(__file__, "guards.sql")]
