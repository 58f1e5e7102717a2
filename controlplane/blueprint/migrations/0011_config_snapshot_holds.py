"""The function from which gateways read the whole configuration, with what is kept out until when."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("blueprint", "0010_config_snapshot_objectives"), ("slos", "0003_holds")]
    operations = [run_sql_file(__file__, "config_snapshot.sql")]
