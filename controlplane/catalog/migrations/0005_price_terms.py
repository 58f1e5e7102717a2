"""Prices of single projects, and multipliers for requests of low and of high priority."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0006_pool_cost"), ("tenants", "0006_key_scopes")]
    operations = [
        migrations.AddField(
            model_name="priceversion",
            name="batch_permille",
            field=models.PositiveIntegerField(default=1000),
        ),
        migrations.AddField(
            model_name="priceversion",
            name="priority_permille",
            field=models.PositiveIntegerField(default=1000),
        ),
        migrations.AddField(
            model_name="priceversion",
            name="effective_until",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="priceversion",
            name="project",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                to="tenants.project",
            ),
        ),
        migrations.AddConstraint(
            model_name="priceversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("batch_permille__lte", 100000), ("priority_permille__lte", 100000)
                ),
                name="price_multiplier_bounds",
            ),
        ),
        migrations.AddConstraint(
            model_name="priceversion",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("effective_until__isnull", True),
                    models.Q(
                        ("project__isnull", False),
                        ("effective_until__gte", models.F("effective_from")),
                    ),
                    _connector="OR",
                ),
                name="price_ends_for_projects_only",
            ),
        ),
    ]
