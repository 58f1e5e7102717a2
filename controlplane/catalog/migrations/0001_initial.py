"""Tables of catalog: models, prices, pools and prompt templates; and the pool that is always there."""

from typing import Any

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


def make_default_pool(apps: Any, schema_editor: Any) -> None:
    """The one that commands take where none is named."""
    apps.get_model("catalog", "Pool").objects.using(schema_editor.connection.alias).create(
        name="default"
    )


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("core", "0001_initial"),
        ("tenants", "0001_initial"),
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
                            models.Q(
                                ("output_tokens_default", 0),
                                ("output_tokens_max", 0),
                                ("task", "embed"),
                            ),
                            models.Q(
                                ("output_tokens_default__gte", 1),
                                ("task", "generate"),
                                ("output_tokens_default__lte", models.F("output_tokens_max")),
                                ("output_tokens_max__lte", models.F("context_window")),
                            ),
                            _connector="OR",
                        ),
                        name="model_output_bounds",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Pool",
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
                        max_length=50,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[a-z0-9][a-z0-9-]{0,49}\\Z",
                                "Use a-z, 0-9 and - only, at most 50.",
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
                    "size_class",
                    models.CharField(
                        choices=[("small", "Small"), ("medium", "Medium"), ("large", "Large")],
                        default="small",
                        max_length=6,
                    ),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[("both", "Both"), ("prefill", "Prefill"), ("decode", "Decode")],
                        default="both",
                        max_length=7,
                    ),
                ),
                ("nodes_min", models.PositiveIntegerField(default=0)),
                ("nodes_max", models.PositiveIntegerField(default=1)),
                ("warm_schedule", models.JSONField(blank=True, default=list)),
                ("start_command", models.CharField(blank=True, default="", max_length=1000)),
                ("card_hour_micro", models.PositiveBigIntegerField(default=0)),
                ("cards_per_node", models.PositiveSmallIntegerField(default=1)),
                ("separate_caches", models.BooleanField(default=False)),
            ],
            options={
                "db_table": "pools",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("task__in", ["generate", "embed"])),
                        name="pool_task_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("size_class__in", ["small", "medium", "large"])),
                        name="pool_size_class_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("role__in", ["both", "prefill", "decode"])),
                        name="pool_role_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("nodes_max__gte", models.F("nodes_min")), ("nodes_max__lte", 1000)
                        ),
                        name="pool_nodes_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("card_hour_micro__lte", 1000000000),
                            ("cards_per_node__gte", 1),
                            ("cards_per_node__lte", 1024),
                        ),
                        name="pool_cost_bounds",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PromptTemplate",
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
                        max_length=64,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[a-z0-9][a-z0-9_-]{0,63}\\Z",
                                "Use a-z, 0-9, _ and - only, at most 64.",
                            )
                        ],
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.organization",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
            ],
            options={
                "db_table": "prompt_templates",
            },
        ),
        migrations.CreateModel(
            name="PromptVersion",
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
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("draft", "Draft"),
                            ("canary", "Canary"),
                            ("published", "Published"),
                            ("retired", "Retired"),
                        ],
                        default="draft",
                        max_length=9,
                    ),
                ),
                ("note", models.CharField(blank=True, default="", max_length=200)),
                ("body", models.JSONField()),
                ("revision", models.PositiveIntegerField(default=1)),
                ("share_permille", models.PositiveSmallIntegerField(default=0)),
                ("published_at", models.DateTimeField(blank=True, null=True)),
                (
                    "copy_of",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="catalog.promptversion",
                    ),
                ),
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
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.organization",
                    ),
                ),
                (
                    "template",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="versions",
                        to="catalog.prompttemplate",
                    ),
                ),
            ],
            options={
                "db_table": "prompt_versions",
            },
        ),
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
                ("batch_permille", models.PositiveIntegerField(default=1000)),
                ("priority_permille", models.PositiveIntegerField(default=1000)),
                ("effective_from", models.DateTimeField()),
                ("effective_until", models.DateTimeField(blank=True, null=True)),
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
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="tenants.project",
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
                    models.CheckConstraint(
                        condition=models.Q(
                            ("batch_permille__lte", 100000), ("priority_permille__lte", 100000)
                        ),
                        name="price_multiplier_bounds",
                    ),
                    models.CheckConstraint(
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
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="prompttemplate",
            constraint=models.UniqueConstraint(
                fields=("organization", "name"), name="prompt_name_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="prompttemplate",
            constraint=models.UniqueConstraint(
                fields=("id", "organization"), name="prompt_with_organization"
            ),
        ),
        migrations.AddConstraint(
            model_name="promptversion",
            constraint=models.UniqueConstraint(
                fields=("template", "version"), name="prompt_version_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="promptversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["draft", "canary", "published", "retired"])),
                name="prompt_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="promptversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("share_permille__lt", 1000)), name="prompt_share_bounds"
            ),
        ),
        migrations.AddConstraint(
            model_name="promptversion",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "published")),
                fields=("template",),
                name="prompt_published_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="promptversion",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "canary")),
                fields=("template",),
                name="prompt_canary_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="purchaseprice",
            constraint=models.CheckConstraint(
                condition=models.Q(("cached_pico__lte", models.F("input_pico"))),
                name="purchase_cached_at_most_input",
            ),
        ),
        migrations.RunPython(make_default_pool),
        run_sql_file(__file__, "guards.sql"),
        run_sql_file(__file__, "prompts.sql"),
    ]
