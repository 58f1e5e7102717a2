"""Windows whose roll-up failed are kept and tried again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0006_dimensions")]
    operations = [
        migrations.CreateModel(
            name="RollupRetry",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "step_s",
                        "at",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("step_s", models.IntegerField()),
                ("at", models.DateTimeField()),
                ("due_at", models.DateTimeField()),
                ("tries", models.IntegerField()),
                ("problem", models.TextField()),
                ("lost", models.BooleanField(default=False)),
            ],
            options={"db_table": "rollup_retries"},
        ),
        migrations.RunSQL("GRANT SELECT, INSERT, UPDATE, DELETE ON rollup_retries TO sluice_app"),
    ]
