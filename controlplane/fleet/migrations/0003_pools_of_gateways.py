"""The pools whose nodes a gateway takes."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0002_node_moments")]

    operations = [
        # With one argument less, and a narrower answer; `migrate` makes the function anew.
        migrations.RunSQL(
            "DROP FUNCTION IF EXISTS fleet_gateway_alive(text, text, integer)",
            migrations.RunSQL.noop,
        ),
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
    ]
