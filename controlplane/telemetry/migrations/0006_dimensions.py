"""Series by one dimension at a time, pool and region among them; exemplars of their percentiles."""

from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0005_drop_partitions")]
    operations = [
        run_sql_file(__file__, "dimensions.sql"),
        run_sql_file(__file__, "exemplars.sql"),
        run_sql_file(__file__, "record.sql"),
        run_sql_file(__file__, "rollups.sql"),
        run_sql_file(__file__, "functions_access.sql"),
        migrations.CreateModel(
            name="Exemplar",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "organization",
                        "measure",
                        "at",
                        "octave",
                        "project",
                        "model",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("organization", models.UUIDField()),
                ("project", models.UUIDField()),
                ("measure", models.TextField()),
                ("model", models.TextField()),
                ("octave", models.SmallIntegerField()),
                ("at", models.DateTimeField()),
                ("value_us", models.BigIntegerField()),
                ("request", models.UUIDField()),
            ],
            options={"db_table": "exemplars", "managed": False},
        ),
    ]
