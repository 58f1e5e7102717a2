"""The function from which gateways read the whole configuration, with approved digests."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("blueprint", "0003_config_snapshot_rules"),
        ("fleet", "0004_node_lives"),
    ]
    operations = [run_sql_file(__file__, "config_snapshot.sql")]
