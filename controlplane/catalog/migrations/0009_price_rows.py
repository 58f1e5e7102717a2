"""Prices of single projects are seen in the scope of their organization alone."""

from django.db import migrations

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("catalog", "0008_purchase_prices"), ("tenants", "0002_guards")]
    operations = [run_sql_file(__file__, "price_rows.sql")]
