"""Table of changes."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("tenants", "0006_cache_of_projects"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ChangeVersion",
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
                ("revision", models.PositiveIntegerField(default=1)),
                ("share_permille", models.PositiveSmallIntegerField(default=0)),
                ("published_at", models.DateTimeField(blank=True, null=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[("limits", "Limits"), ("prices", "Prices")], max_length=6
                    ),
                ),
                ("content", models.JSONField()),
                ("replaced", models.JSONField(blank=True, null=True)),
                ("canary_at", models.DateTimeField(blank=True, null=True)),
                (
                    "copy_of",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="changes.changeversion",
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
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="tenants.organization",
                    ),
                ),
            ],
            options={
                "db_table": "changes",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["draft", "canary", "published", "retired"])
                        ),
                        name="change_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind", "limits"), ("organization__isnull", False)),
                            models.Q(("kind", "prices"), ("organization__isnull", True)),
                            _connector="OR",
                        ),
                        name="change_kind_has_its_owner",
                    ),
                    models.UniqueConstraint(
                        fields=("organization", "kind", "version"),
                        name="change_version_once",
                        nulls_distinct=False,
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("state", "published")),
                        fields=("organization", "kind"),
                        name="change_published_once",
                        nulls_distinct=False,
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("state", "canary")),
                        fields=("organization", "kind"),
                        name="change_canary_once",
                        nulls_distinct=False,
                    ),
                ],
            },
        ),
        run_sql_file(__file__, "guards.sql"),
    ]
