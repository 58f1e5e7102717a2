"""Tables of hosts and deployments."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    initial = True

    dependencies = [("fleet", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Host",
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
                ("name", models.CharField(max_length=50, unique=True)),
                ("key_id", models.CharField(max_length=12, unique=True)),
                ("digest", models.BinaryField(max_length=32)),
                ("redacted", models.CharField(max_length=40)),
                ("token_expires_at", models.DateTimeField()),
                ("enrolled_at", models.DateTimeField(blank=True, null=True)),
                ("inventory", models.JSONField(blank=True, default=dict)),
                ("seen_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "hosts",
            },
        ),
        migrations.CreateModel(
            name="Deployment",
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
                ("name", models.CharField(max_length=50, unique=True)),
                ("model", models.CharField(max_length=100)),
                ("engine", models.CharField(max_length=20)),
                ("source_kind", models.CharField(max_length=10)),
                ("source_name", models.CharField(max_length=500)),
                ("revision", models.CharField(blank=True, default="", max_length=100)),
                ("arguments", models.JSONField(blank=True, default=dict)),
                ("window", models.PositiveIntegerField()),
                ("sequences", models.PositiveIntegerField()),
                ("replicas", models.PositiveIntegerField()),
                ("schedule", models.JSONField(blank=True, default=list)),
                (
                    "hosts",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=50),
                        blank=True,
                        default=list,
                        size=None,
                    ),
                ),
                ("generation", models.PositiveIntegerField(default=1)),
                ("sizes", models.JSONField(blank=True, default=dict)),
                ("files_digest", models.CharField(blank=True, default="", max_length=64)),
                ("message", models.TextField(blank=True, default="")),
                ("removed_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "deployments",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("source_kind__in", ("folder", "hub"))),
                        name="deployment_source_known",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DeploymentReplica",
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
                ("node_name", models.CharField(max_length=100)),
                ("generation", models.PositiveIntegerField()),
                ("source_kind", models.CharField(max_length=10)),
                ("source_name", models.CharField(max_length=500)),
                ("revision", models.CharField(blank=True, default="", max_length=100)),
                ("engine", models.CharField(max_length=20)),
                ("arguments", models.JSONField(blank=True, default=dict)),
                ("gpu", models.PositiveIntegerField(blank=True, null=True)),
                ("kv", models.BigIntegerField()),
                ("need", models.BigIntegerField()),
                ("leaving", models.BooleanField(default=False)),
                ("told", models.JSONField(blank=True, default=dict)),
                (
                    "deployment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="placed",
                        to="hosts.deployment",
                    ),
                ),
                (
                    "host",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="placed",
                        to="hosts.host",
                    ),
                ),
            ],
            options={
                "db_table": "deployment_replicas",
                "constraints": [
                    models.UniqueConstraint(fields=("node_name",), name="replica_node_once")
                ],
            },
        ),
        run_sql_file(__file__, "access.sql"),
    ]
