"""Tables of fleet."""

import django.contrib.postgres.fields
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
            name="Node",
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
                ("name", models.CharField(max_length=100, unique=True)),
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
                ("region", models.CharField(default="local", max_length=50)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("new", "New"),
                            ("connected", "Connected"),
                            ("draining", "Draining"),
                            ("disconnected", "Disconnected"),
                            ("quarantined", "Quarantined"),
                        ],
                        default="new",
                        max_length=12,
                    ),
                ),
                ("facts", models.JSONField(blank=True, default=dict)),
                ("last_seen_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "nodes",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                ["new", "connected", "draining", "disconnected", "quarantined"],
                            )
                        ),
                        name="node_state_known",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="NodeCredential",
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
                ("key_id", models.CharField(max_length=12, unique=True)),
                ("digest", models.BinaryField(max_length=32)),
                ("redacted", models.CharField(max_length=40)),
                (
                    "allowed_models",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100),
                        blank=True,
                        null=True,
                        size=None,
                    ),
                ),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_reason", models.CharField(blank=True, default="", max_length=200)),
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
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="credentials",
                        to="fleet.node",
                    ),
                ),
            ],
            options={
                "db_table": "node_credentials",
            },
        ),
    ]
