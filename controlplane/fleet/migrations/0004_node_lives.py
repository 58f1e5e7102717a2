"""Standing, quarantine and load of nodes, enrolment tokens, approved digests, cold starts."""

from typing import Any

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


def make_pools_of_nodes(apps: Any, schema_editor: Any) -> None:
    """Every pool that a node is in."""
    using = schema_editor.connection.alias
    nodes = apps.get_model("fleet", "Node").objects.using(using)
    pools = apps.get_model("catalog", "Pool").objects.using(using)
    for name in nodes.values_list("pool", flat=True).distinct():
        pools.get_or_create(name=name)


class Migration(migrations.Migration):
    dependencies = [
        ("catalog", "0004_pools"),
        ("fleet", "0003_gateways"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
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
            ],
            options={
                "db_table": "enrolment_tokens",
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
            ],
            options={
                "db_table": "model_digests",
            },
        ),
        migrations.CreateModel(
            name="NodeLink",
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
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="links",
                        to="fleet.node",
                    ),
                ),
                ("gateway", models.CharField(max_length=64)),
                ("facts", models.JSONField(default=dict)),
                ("seen_at", models.DateTimeField()),
            ],
            options={
                "db_table": "node_links",
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
            ],
            options={
                "db_table": "node_starts",
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
        migrations.AddField(
            model_name="node",
            name="drain_until",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="node",
            name="quarantine_reason",
            field=models.CharField(blank=True, default="", max_length=300),
        ),
        migrations.AddField(
            model_name="node",
            name="quarantined_until",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="node",
            name="standing",
            field=models.CharField(
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
        migrations.AddConstraint(
            model_name="node",
            constraint=models.CheckConstraint(
                condition=models.Q(("standing__in", ["pending", "active", "draining", "removed"])),
                name="node_standing_known",
            ),
        ),
        migrations.AddField(
            model_name="enrolmenttoken",
            name="created_by",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="enrolmenttoken",
            name="node",
            field=models.ForeignKey(
                blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="fleet.node"
            ),
        ),
        migrations.AddField(
            model_name="modeldigest",
            name="decided_by",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="nodestart",
            name="node",
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="fleet.node"),
        ),
        migrations.AddConstraint(
            model_name="modeldigest",
            constraint=models.UniqueConstraint(
                fields=("model", "digest"), name="model_digest_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="modeldigest",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["waiting", "approved", "refused"])),
                name="model_digest_state_known",
            ),
        ),
        migrations.AddIndex(
            model_name="nodestart",
            index=models.Index(fields=["pool", "created_at"], name="node_start_by_pool"),
        ),
        migrations.AddConstraint(
            model_name="nodestart",
            constraint=models.UniqueConstraint(fields=("node", "epoch"), name="node_start_once"),
        ),
        migrations.RunPython(make_pools_of_nodes),
        migrations.RunSQL(
            "ALTER TABLE nodes ADD CONSTRAINT node_pool_known"
            " FOREIGN KEY (pool) REFERENCES pools (name) DEFERRABLE INITIALLY DEFERRED;"
            "ALTER TABLE enrolment_tokens ADD CONSTRAINT enrolment_token_pool_known"
            " FOREIGN KEY (pool) REFERENCES pools (name) DEFERRABLE INITIALLY DEFERRED"
        ),
        run_sql_file(__file__, "node_lives.sql"),
    ]
