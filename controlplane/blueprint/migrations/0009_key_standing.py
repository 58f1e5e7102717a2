"""The function that tells a key of its budgets and of what it spent."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("blueprint", "0008_config_snapshot_people"),
        ("billing", "0006_closes"),
    ]
    operations = [run_sql_file(__file__, "key_standing.sql")]
