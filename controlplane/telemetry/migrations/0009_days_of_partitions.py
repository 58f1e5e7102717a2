"""Names that end with eight digits and are no day do not stop retention."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0008_usage_pools")]
    operations = [run_sql_file(__file__, "drop_partitions.sql")]
