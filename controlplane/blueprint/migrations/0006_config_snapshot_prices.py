"""The function from which gateways read the whole configuration, with wallets and price terms."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("blueprint", "0005_config_snapshot_scopes"),
        ("catalog", "0005_price_terms"),
        ("billing", "0006_closes"),
    ]
    operations = [run_sql_file(__file__, "config_snapshot.sql")]
