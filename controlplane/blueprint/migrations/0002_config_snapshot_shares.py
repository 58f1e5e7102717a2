"""The function from which gateways read the whole configuration, with shares and priorities."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("blueprint", "0001_config_snapshot"), ("tenants", "0004_shares")]
    operations = [run_sql_file(__file__, "config_snapshot.sql")]
