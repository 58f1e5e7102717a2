"""The gateways that live now, as they say themselves."""

from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("fleet", "0002_gateway_functions")]
    operations = [
        migrations.CreateModel(
            name="Gateway",
            fields=[
                ("instance", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("url", models.CharField(blank=True, default="", max_length=200)),
                ("started_at", models.DateTimeField()),
                ("heartbeat_at", models.DateTimeField()),
                ("share_of", models.PositiveIntegerField(default=0)),
            ],
            options={"db_table": "gateways"},
        ),
        run_sql_file(__file__, "gateways.sql"),
    ]
