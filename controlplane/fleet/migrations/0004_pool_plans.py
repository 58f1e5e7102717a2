"""The latest plan of each pool."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0005_plan_mode"), ("fleet", "0003_pools_of_gateways")]

    operations = [
        migrations.CreateModel(
            name="PoolPlan",
            fields=[
                (
                    "pool",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        serialize=False,
                        to="catalog.pool",
                    ),
                ),
                ("nodes", models.PositiveIntegerField()),
                ("settle_s", models.FloatField()),
                ("reasons", models.JSONField()),
                ("made_at", models.DateTimeField()),
                ("until", models.DateTimeField()),
            ],
            options={
                "db_table": "pool_plans",
            },
        ),
        migrations.RunSQL("GRANT SELECT, INSERT, UPDATE ON pool_plans TO sluice_app"),
    ]
