"""The function from which gateways read the whole configuration, with prompt templates."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("blueprint", "0004_config_snapshot_digests"),
        ("catalog", "0007_prompt_templates"),
    ]
    operations = [run_sql_file(__file__, "config_snapshot.sql")]
