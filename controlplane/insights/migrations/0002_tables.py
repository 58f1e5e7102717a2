"""Table of hygiene's counts, its functions, and grants."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("insights", "0001_initial"), ("core", "0002_guards")]
    operations = [run_sql_file(__file__, "tables.sql")]
