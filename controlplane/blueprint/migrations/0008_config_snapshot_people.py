"""The function from which gateways read the whole configuration, with ends of Playground tokens."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("blueprint", "0006_config_snapshot_prices"),
        ("tenants", "0005_people"),
    ]
    operations = [run_sql_file(__file__, "config_snapshot.sql")]
