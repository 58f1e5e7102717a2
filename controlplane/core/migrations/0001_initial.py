"""Tables of core: the audit log and the version of the configuration, kept answers."""

import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        run_sql_file(__file__, "owner/triggers.sql"),
        migrations.CreateModel(
            name="AuditLink",
            fields=[
                ("number", models.BigIntegerField(primary_key=True, serialize=False)),
                ("entry", models.UUIDField(unique=True)),
                ("digest", models.BinaryField(max_length=32)),
                ("chained_at", models.DateTimeField()),
            ],
            options={
                "db_table": "audit_links",
            },
        ),
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
                ("before", models.JSONField(blank=True, null=True)),
                ("after", models.JSONField(blank=True, null=True)),
                ("channel", models.TextField(blank=True, default="")),
                ("address", models.TextField(blank=True, default="")),
                ("agent", models.TextField(blank=True, default="")),
                ("credential", models.TextField(blank=True, default="")),
            ],
            options={
                "db_table": "audit_entries",
                "indexes": [
                    models.Index(fields=["organization_id", "id"], name="audit_by_organization"),
                    models.Index(fields=["subject_id", "id"], name="audit_by_subject"),
                    models.Index(fields=["created_at"], name="audit_by_time"),
                ],
            },
        ),
        migrations.CreateModel(
            name="KeptAnswer",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("payload", models.BinaryField(max_length=32)),
                ("status", models.SmallIntegerField()),
                ("body", models.BinaryField(null=True)),
                ("rights", models.JSONField(default=list)),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
            ],
            options={
                "db_table": "kept_answers",
                "indexes": [models.Index(fields=["created_at"], name="kept_answer_oldest_first")],
            },
        ),
        run_sql_file(__file__, "audit.sql"),
        run_sql_file(__file__, "configuration.sql"),
        run_sql_file(__file__, "kept_answers.sql"),
    ]
