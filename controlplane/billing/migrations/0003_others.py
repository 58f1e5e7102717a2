"""Holds of requests that one of several models may serve carry the prices of all of them."""

from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_ledger")]
    operations = [
        run_sql_file(__file__, "others.sql"),
        run_sql_file(__file__, "hold.sql"),
        run_sql_file(__file__, "settle.sql"),
        run_sql_file(__file__, "jobs.sql"),
        run_sql_file(__file__, "functions_access.sql"),
        migrations.AddField("openhold", "others", models.JSONField(null=True)),
        migrations.AddField("transfer", "others", models.JSONField(null=True)),
    ]
