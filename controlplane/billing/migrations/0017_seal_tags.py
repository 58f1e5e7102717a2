"""Seals keep four bytes of each line, by which the first line that differs is named."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("billing", "0016_give_back_own_period")]
    operations = [
        run_sql_file(__file__, "seal_tags.sql"),
        run_sql_file(__file__, "jobs.sql"),
        run_sql_file(__file__, "functions_access.sql"),
    ]
