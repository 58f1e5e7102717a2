"""What the fleet had cached and what routing captured of it, beside what engines delivered."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0003_clients_left")]
    operations = [
        run_sql_file(__file__, "reuse.sql"),
        run_sql_file(__file__, "record.sql"),
        run_sql_file(__file__, "rollups.sql"),
    ]
