"""What gateways tell every other second no longer rewrites the rows of all nodes."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("fleet", "0004_node_lives")]
    operations = [run_sql_file(__file__, "links_seen.sql")]
