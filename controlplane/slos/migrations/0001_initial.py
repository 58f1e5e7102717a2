"""Tables of slos."""

import uuid

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models
import controlplane.slos.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("core", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Counted",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "objective",
                        "step_s",
                        "at",
                        "version",
                        "writer",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("objective", models.UUIDField()),
                ("step_s", models.IntegerField()),
                ("at", models.DateTimeField()),
                ("version", models.PositiveIntegerField()),
                ("writer", models.UUIDField()),
                ("organization", models.UUIDField()),
                ("good", models.BigIntegerField()),
                ("total", models.BigIntegerField()),
            ],
            options={
                "db_table": "slo_counts",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="StageOwner",
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
                ("stage", models.CharField(max_length=40, unique=True)),
                ("team", models.CharField(max_length=100)),
                ("email", models.EmailField(blank=True, default="", max_length=254)),
                ("budget_us", models.BigIntegerField()),
                ("runbook", models.CharField(max_length=500)),
            ],
            options={
                "db_table": "slo_stage_owners",
            },
        ),
        migrations.CreateModel(
            name="Channel",
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
                ("organization", models.UUIDField()),
                ("kind", models.CharField(max_length=7)),
                ("sealed", models.BinaryField()),
                ("digest", models.BinaryField()),
                ("shown", models.CharField(max_length=500)),
            ],
            options={
                "db_table": "slo_channels",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("organization", "kind", "digest"), name="channel_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", ["webhook", "slack", "email"])),
                        name="channel_kind_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Objective",
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
                ("organization", models.UUIDField()),
                ("name", models.CharField(max_length=100)),
                ("indicator", models.CharField(max_length=40)),
                ("threshold", models.BigIntegerField(default=0)),
                ("route", models.CharField(blank=True, default="", max_length=200)),
                ("model", models.CharField(blank=True, default="", max_length=200)),
                ("project", models.UUIDField(blank=True, null=True)),
                ("prompt_bucket", models.SmallIntegerField(default=-1)),
                ("target_ppm", models.IntegerField()),
                ("period_days", models.SmallIntegerField(default=30)),
                ("rules", models.JSONField(default=controlplane.slos.models.default_rules)),
                ("absent_after_min", models.SmallIntegerField(default=60)),
                ("team", models.CharField(max_length=100)),
                ("email", models.EmailField(blank=True, default="", max_length=254)),
                ("runbook", models.CharField(max_length=500)),
                ("enabled", models.BooleanField(default=True)),
                ("version", models.PositiveIntegerField(default=1)),
                ("shed_priority", models.SmallIntegerField(blank=True, null=True)),
                ("stop_canary", models.BooleanField(default=False)),
                ("shift_version", models.PositiveIntegerField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "slo_objectives",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at", None)),
                        fields=("organization", "name"),
                        name="objective_name_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("target_ppm__gt", 0), ("target_ppm__lt", 1000000)),
                        name="objective_target_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("period_days__in", (28, 30))),
                        name="objective_period_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("shed_priority", None),
                            ("shed_priority__in", (0, 1, 2)),
                            _connector="OR",
                        ),
                        name="objective_shed_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("organization", uuid.UUID("00000000-0000-0000-0000-000000000000")),
                            models.Q(
                                ("shed_priority", None),
                                ("shift_version", None),
                                ("stop_canary", False),
                            ),
                            _connector="OR",
                        ),
                        name="objective_acts_for_everyone",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Change",
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
                ("organization", models.UUIDField()),
                ("version", models.PositiveIntegerField()),
                ("text", models.CharField(max_length=500)),
                (
                    "objective",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="changes",
                        to="slos.objective",
                    ),
                ),
            ],
            options={
                "db_table": "slo_changes",
            },
        ),
        migrations.CreateModel(
            name="Alert",
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
                ("organization", models.UUIDField()),
                ("severity", models.CharField(max_length=6)),
                ("rule", models.CharField(max_length=20)),
                ("state", models.CharField(default="firing", max_length=9)),
                ("burn_long", models.FloatField(blank=True, null=True)),
                ("burn_short", models.FloatField(blank=True, null=True)),
                ("acts", models.JSONField(blank=True, default=list)),
                ("recovered_at", models.DateTimeField(blank=True, null=True)),
                (
                    "objective",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="alerts",
                        to="slos.objective",
                    ),
                ),
            ],
            options={
                "db_table": "slo_alerts",
            },
        ),
        migrations.CreateModel(
            name="Delivery",
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
                ("organization", models.UUIDField()),
                ("event", models.CharField(max_length=9)),
                ("kind", models.CharField(max_length=7)),
                ("address", models.CharField(blank=True, default="", max_length=500)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("due_at", models.DateTimeField()),
                ("sent_at", models.DateTimeField(blank=True, null=True)),
                ("error", models.CharField(blank=True, default="", max_length=500)),
                (
                    "alert",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="slos.alert",
                    ),
                ),
                (
                    "channel",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="slos.channel",
                    ),
                ),
            ],
            options={
                "db_table": "slo_deliveries",
                "indexes": [
                    models.Index(
                        condition=models.Q(("sent_at", None)),
                        fields=["due_at"],
                        name="delivery_due_first",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("alert", "event", "channel"), name="delivery_once_by_channel"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("channel", None)),
                        fields=("alert", "event", "address"),
                        name="delivery_once_to_owner",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Shed",
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
                ("organization", models.UUIDField()),
                ("since", models.DateTimeField()),
                ("least", models.DurationField()),
                ("well_since", models.DateTimeField(blank=True, null=True)),
                ("until", models.DateTimeField()),
                ("released_at", models.DateTimeField(blank=True, null=True)),
                (
                    "objective",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sheds",
                        to="slos.objective",
                    ),
                ),
            ],
            options={
                "db_table": "slo_holds",
                "indexes": [models.Index(fields=["objective", "-since"], name="hold_newest_first")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("released_at", None)),
                        fields=("objective",),
                        name="objective_holds_once",
                    )
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="alert",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "firing")),
                fields=("objective", "severity"),
                name="alert_fires_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="alert",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["firing", "recovered"])), name="alert_state_known"
            ),
        ),
        run_sql_file(__file__, "counts.sql"),
        run_sql_file(__file__, "access.sql"),
    ]
