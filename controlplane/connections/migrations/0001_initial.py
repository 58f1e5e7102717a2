"""Tables of connections."""

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("catalog", "0002_images"),
    ]

    operations = [
        migrations.CreateModel(
            name="Connection",
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
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[a-z0-9][a-z0-9-]{0,49}\\Z",
                                "Use a-z, 0-9 and - only, at most 50.",
                            )
                        ],
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("openai", "OpenAI"),
                            ("azure", "Azure OpenAI"),
                            ("anthropic", "Anthropic"),
                            ("other", "Other, OpenAI-compatible"),
                        ],
                        max_length=10,
                    ),
                ),
                ("url", models.CharField(max_length=300)),
                (
                    "api_version",
                    models.CharField(
                        blank=True,
                        default="",
                        max_length=40,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[A-Za-z0-9.-]{0,40}\\Z", "Use letters, digits, . and - only."
                            )
                        ],
                    ),
                ),
                (
                    "region",
                    models.CharField(
                        blank=True,
                        default="",
                        max_length=50,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[a-z0-9-]{0,50}\\Z", "Use a-z, 0-9 and - only, at most 50."
                            )
                        ],
                    ),
                ),
                ("enabled", models.BooleanField(default=True)),
                ("listed", models.JSONField(blank=True, default=list)),
                ("outcome", models.CharField(blank=True, default="", max_length=20)),
                ("tested_at", models.DateTimeField(blank=True, null=True)),
                ("removed_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "connections",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("removed_at", None)),
                        fields=("name",),
                        name="connection_name_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["openai", "azure", "anthropic", "other"])),
                        name="connection_kind_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ConnectionKey",
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
                ("sealed", models.BinaryField(null=True)),
                ("shown", models.CharField(max_length=4)),
                ("retired_at", models.DateTimeField(blank=True, null=True)),
                (
                    "connection",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="keys",
                        to="connections.connection",
                    ),
                ),
            ],
            options={
                "db_table": "connection_keys",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("retired_at", None), ("sealed__isnull", False)),
                            models.Q(("retired_at__isnull", False), ("sealed", None)),
                            _connector="OR",
                        ),
                        name="connection_key_forgotten_when_retired",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ConnectionModel",
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
                    "upstream",
                    models.CharField(
                        max_length=100,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}\\Z",
                                "Use letters, digits and . _ : / - only, at most 100 characters.",
                            )
                        ],
                    ),
                ),
                ("withdrawn_at", models.DateTimeField(blank=True, null=True)),
                (
                    "connection",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="offers",
                        to="connections.connection",
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="catalog.model",
                    ),
                ),
            ],
            options={
                "db_table": "connection_models",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("withdrawn_at", None)),
                        fields=("model",),
                        name="connection_of_model_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ProviderAmount",
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
                ("day", models.DateField()),
                (
                    "upstream",
                    models.CharField(
                        max_length=100,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}\\Z",
                                "Use letters, digits and . _ : / - only, at most 100 characters.",
                            )
                        ],
                    ),
                ),
                (
                    "nano",
                    models.PositiveBigIntegerField(
                        validators=[django.core.validators.MaxValueValidator(10000000000000000)]
                    ),
                ),
                (
                    "connection",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="amounts",
                        to="connections.connection",
                    ),
                ),
            ],
            options={
                "db_table": "provider_amounts",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("connection", "day", "upstream"), name="provider_amount_once"
                    )
                ],
            },
        ),
        run_sql_file(__file__, "access.sql"),
    ]
