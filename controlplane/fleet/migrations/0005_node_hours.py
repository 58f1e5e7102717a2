"""How long each node was there, hour by hour, and at what price."""

import django.db.models.fields.composite
from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("fleet", "0004_node_lives"), ("catalog", "0006_pool_cost")]
    operations = [
        migrations.CreateModel(
            name="NodeHour",
            fields=[
                (
                    "pk",
                    django.db.models.fields.composite.CompositePrimaryKey(
                        "hour",
                        "node",
                        "pool",
                        "card_hour_micro",
                        "cards_per_node",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("node", models.UUIDField()),
                ("pool", models.TextField()),
                ("card_hour_micro", models.BigIntegerField()),
                ("cards_per_node", models.IntegerField()),
                ("up_ms", models.BigIntegerField()),
                ("busy_ms", models.BigIntegerField()),
            ],
            options={"db_table": "node_hours"},
        ),
        run_sql_file(__file__, "node_hours.sql"),
    ]
