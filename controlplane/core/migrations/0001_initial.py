"""Tables of core."""

import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="ConfigVersion",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("version", models.BigIntegerField()),
            ],
            options={
                "db_table": "config_version",
            },
        ),
        migrations.CreateModel(
            name="AuditEntry",
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
                ("actor_id", models.UUIDField(blank=True, null=True)),
                ("actor_label", models.TextField()),
                ("organization_id", models.UUIDField(blank=True, null=True)),
                ("action", models.TextField()),
                ("subject_type", models.TextField()),
                ("subject_id", models.UUIDField()),
                ("detail", models.JSONField(blank=True, default=dict)),
            ],
            options={
                "db_table": "audit_entries",
                "indexes": [
                    models.Index(fields=["organization_id", "id"], name="audit_by_organization")
                ],
            },
        ),
    ]
