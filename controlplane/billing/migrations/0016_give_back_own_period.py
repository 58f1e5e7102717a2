"""A reversal makes room in the budget period in which the charge was booked, and in no later one."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("billing", "0015_close_jobs")]
    operations = [
        run_sql_file(__file__, "journal_functions.sql"),
        run_sql_file(__file__, "functions_access.sql"),
    ]
