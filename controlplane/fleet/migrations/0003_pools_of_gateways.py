"""The pools whose nodes a gateway takes."""

import django.contrib.postgres.fields
from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("fleet", "0002_node_moments")]

    operations = [
        migrations.AddField(
            model_name="gateway",
            name="pools",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=50),
                blank=True,
                db_default=[],
                default=list,
                size=None,
            ),
        ),
        # It has one argument less, and a narrower answer. Gateways that serve meanwhile call it every
        # second, so the other is there when this is gone.
        migrations.RunSQL(
            "DROP FUNCTION IF EXISTS fleet_gateway_alive(text, text, integer)",
            migrations.RunSQL.noop,
        ),
        run_sql_file(__file__, "functions/gateways.sql"),
    ]
