"""Waste by client, and three more kinds of it."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("insights", "0001_initial")]

    operations = [run_sql_file(__file__, "clients.sql")]
