"""Days are read from the names of partitions alone."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0004_reuse")]
    operations = [run_sql_file(__file__, "drop_partitions.sql")]
