"""The function from which gateways read the whole configuration."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    initial = True
    dependencies = [
        ("tenants", "0002_guards"),
        ("catalog", "0002_guards"),
        ("quotas", "0002_guards"),
        ("routing", "0002_guards"),
        ("billing", "0002_ledger"),
    ]
    operations = [run_sql_file(__file__, "config_snapshot.sql")]
