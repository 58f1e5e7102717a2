"""What tokens of models cost to buy, by the day from which it counts."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import controlplane.core.models


class Migration(migrations.Migration):
    dependencies = [
        ("catalog", "0005_price_terms"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        migrations.CreateModel(
            name="PurchasePrice",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=controlplane.core.models.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("from_day", models.DateField()),
                ("input_pico", models.PositiveBigIntegerField()),
                ("cached_pico", models.PositiveBigIntegerField()),
                ("output_pico", models.PositiveBigIntegerField()),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="purchases",
                        to="catalog.model",
                    ),
                ),
            ],
            options={
                "db_table": "purchase_prices",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("cached_pico__lte", models.F("input_pico"))),
                        name="purchase_cached_at_most_input",
                    )
                ],
            },
        ),
        migrations.RunSQL("GRANT SELECT, INSERT ON purchase_prices TO sluice_app"),
    ]
