"""What busy nodes were like, by ten seconds."""

import django.db.models.deletion
from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("fleet", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="NodeMoment",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "node_id",
                        "at",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("at", models.DateTimeField(db_index=True)),
                ("running", models.IntegerField()),
                ("waiting", models.IntegerField()),
                ("kv_permille", models.SmallIntegerField(blank=True, null=True)),
                ("cpu_permille", models.SmallIntegerField(blank=True, null=True)),
                ("step_us", models.BigIntegerField()),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="moments",
                        to="fleet.node",
                    ),
                ),
            ],
            options={
                "db_table": "node_moments",
            },
        ),
        run_sql_file(__file__, "moments.sql"),
    ]
