"""Tables of fleet: nodes, gateways and what they tell."""

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("core", "0001_initial"),
        ("catalog", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Gateway",
            fields=[
                ("instance", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("url", models.CharField(blank=True, default="", max_length=200)),
                ("started_at", models.DateTimeField()),
                ("heartbeat_at", models.DateTimeField()),
                ("share_of", models.PositiveIntegerField(default=0)),
            ],
            options={
                "db_table": "gateways",
            },
        ),
        migrations.CreateModel(
            name="GatewayQueue",
            fields=[
                ("gateway", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("waiting", models.JSONField(default=dict)),
                ("seen_at", models.DateTimeField()),
            ],
            options={
                "db_table": "gateway_queues",
            },
        ),
        migrations.CreateModel(
            name="NodeHour",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "hour",
                        "node",
                        "pool",
                        "card_hour_micro",
                        "cards_per_node",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("node", models.UUIDField()),
                ("pool", models.TextField()),
                ("card_hour_micro", models.BigIntegerField()),
                ("cards_per_node", models.IntegerField()),
                ("up_ms", models.BigIntegerField()),
                ("busy_ms", models.BigIntegerField()),
            ],
            options={
                "db_table": "node_hours",
            },
        ),
        migrations.CreateModel(
            name="PoolScale",
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
                ("desired", models.PositiveIntegerField()),
                ("low_since", models.DateTimeField(blank=True, null=True)),
                ("low_peak", models.PositiveIntegerField(default=0)),
                ("evaluated_at", models.DateTimeField()),
            ],
            options={
                "db_table": "pool_scales",
            },
        ),
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
                (
                    "standing",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("active", "Active"),
                            ("draining", "Draining"),
                            ("removed", "Removed"),
                        ],
                        default="active",
                        max_length=8,
                    ),
                ),
                ("drain_until", models.DateTimeField(blank=True, null=True)),
                ("quarantined_until", models.DateTimeField(blank=True, null=True)),
                ("quarantine_reason", models.CharField(blank=True, default="", max_length=300)),
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
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("standing__in", ["pending", "active", "draining", "removed"])
                        ),
                        name="node_standing_known",
                    ),
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
        migrations.CreateModel(
            name="NodeConnection",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "node_id",
                        "gateway",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("gateway", models.CharField(max_length=64)),
                ("facts", models.JSONField(default=dict)),
                ("seen_at", models.DateTimeField()),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="links",
                        to="fleet.node",
                    ),
                ),
            ],
            options={
                "db_table": "node_links",
            },
        ),
        migrations.CreateModel(
            name="ModelDigest",
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
                ("model", models.CharField(max_length=100)),
                ("digest", models.CharField(blank=True, max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("approved", "Approved"),
                            ("refused", "Refused"),
                        ],
                        default="waiting",
                        max_length=8,
                    ),
                ),
                ("offered_by", models.CharField(blank=True, default="", max_length=100)),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
                (
                    "decided_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "model_digests",
                "constraints": [
                    models.UniqueConstraint(fields=("model", "digest"), name="model_digest_once"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["waiting", "approved", "refused"])),
                        name="model_digest_state_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="EnrolmentToken",
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
                (
                    "allowed_models",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100),
                        blank=True,
                        null=True,
                        size=None,
                    ),
                ),
                ("approved", models.BooleanField(default=False)),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(blank=True, null=True)),
                ("form", models.UUIDField(blank=True, editable=False, null=True)),
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
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="fleet.node",
                    ),
                ),
            ],
            options={
                "db_table": "enrolment_tokens",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("created_by", "form"), name="one_enrolment_token_of_a_form"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="NodeStart",
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
                ("pool", models.CharField(max_length=50)),
                ("epoch", models.CharField(max_length=100)),
                ("cold_start_ms", models.PositiveIntegerField()),
                (
                    "node",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="fleet.node"),
                ),
            ],
            options={
                "db_table": "node_starts",
                "indexes": [models.Index(fields=["pool", "created_at"], name="node_start_by_pool")],
                "constraints": [
                    models.UniqueConstraint(fields=("node", "epoch"), name="node_start_once")
                ],
            },
        ),
        run_sql_file(__file__, "access.sql"),
    ]
