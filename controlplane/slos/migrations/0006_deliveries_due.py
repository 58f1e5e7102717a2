"""Messages that are due, a few of each organization."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("slos", "0005_days")]
    operations = [run_sql_file(__file__, "deliveries_due.sql")]
