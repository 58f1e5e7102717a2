"""Usage is counted by the pool that served it, too."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0007_rollup_retries")]
    operations = [
        run_sql_file(__file__, "usage_pools.sql"),
        run_sql_file(__file__, "record.sql"),
        run_sql_file(__file__, "rollups.sql"),
        run_sql_file(__file__, "functions_access.sql"),
    ]
