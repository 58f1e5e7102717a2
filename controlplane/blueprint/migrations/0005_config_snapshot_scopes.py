"""The function from which gateways read the whole configuration, with scopes and all limits."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("blueprint", "0007_config_snapshot_prompts"),
        ("tenants", "0006_key_scopes"),
        ("quotas", "0003_more_limits"),
    ]
    operations = [run_sql_file(__file__, "config_snapshot.sql")]
