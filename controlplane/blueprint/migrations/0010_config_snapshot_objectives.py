"""The function from which gateways read the whole configuration, with objectives."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("blueprint", "0009_key_standing"), ("slos", "0002_tables")]
    operations = [run_sql_file(__file__, "config_snapshot.sql")]
