"""Tables of catalog."""

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import controlplane.core.models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Model",
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
                (
                    "name",
                    models.CharField(
                        max_length=100,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}\\Z",
                                "Use letters, digits and . _ : / - only, at most 100 characters.",
                            )
                        ],
                    ),
                ),
                (
                    "task",
                    models.CharField(
                        choices=[("generate", "Generate"), ("embed", "Embed")],
                        default="generate",
                        max_length=8,
                    ),
                ),
                (
                    "pool",
                    models.CharField(
                        max_length=50,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[a-z0-9][a-z0-9-]{0,49}\\Z",
                                "Use a-z, 0-9 and - only, at most 50.",
                            )
                        ],
                    ),
                ),
                ("context_window", models.PositiveIntegerField()),
                ("output_tokens_default", models.PositiveIntegerField()),
                ("output_tokens_max", models.PositiveIntegerField()),
                ("enabled", models.BooleanField(default=True)),
                ("owner", models.CharField(default="sluice", max_length=100)),
            ],
            options={
                "db_table": "models",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("task__in", ["generate", "embed"])),
                        name="model_task_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("context_window__gte", 1), ("context_window__lte", 10000000)
                        ),
                        name="model_context_window_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("output_tokens_default__gte", 1),
                            ("output_tokens_default__lte", models.F("output_tokens_max")),
                            ("output_tokens_max__lte", models.F("context_window")),
                        ),
                        name="model_output_bounds",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PriceVersion",
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
                ("version", models.PositiveIntegerField()),
                ("input_pico", models.PositiveBigIntegerField()),
                ("cached_pico", models.PositiveBigIntegerField()),
                ("output_pico", models.PositiveBigIntegerField()),
                ("effective_from", models.DateTimeField()),
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
                        related_name="prices",
                        to="catalog.model",
                    ),
                ),
            ],
            options={
                "db_table": "price_versions",
                "indexes": [models.Index(fields=["effective_from"], name="price_effective")],
                "constraints": [
                    models.UniqueConstraint(fields=("model", "version"), name="price_version_once"),
                    models.CheckConstraint(
                        condition=models.Q(("cached_pico__lte", models.F("input_pico"))),
                        name="price_cached_at_most_input",
                    ),
                ],
            },
        ),
    ]
