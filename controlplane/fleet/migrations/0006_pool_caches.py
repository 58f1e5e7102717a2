"""Gateways hear whether a node's pool wants tenants' prefix caches kept apart."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("fleet", "0005_node_hours"), ("catalog", "0010_separate_caches")]
    operations = [run_sql_file(__file__, "pool_caches.sql")]
