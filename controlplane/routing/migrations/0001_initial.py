"""Table of routing."""

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
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="RuleSet",
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
                ("version", models.PositiveIntegerField(unique=True)),
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
                ("rules", models.JSONField(blank=True, default=list)),
                ("revision", models.PositiveIntegerField(default=1)),
                ("share_permille", models.PositiveSmallIntegerField(default=0)),
                ("stops_itself", models.BooleanField(default=False)),
                ("canary_at", models.DateTimeField(blank=True, null=True)),
                ("published_at", models.DateTimeField(blank=True, null=True)),
                ("retired_at", models.DateTimeField(blank=True, null=True)),
                (
                    "based_on",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="routing.ruleset",
                    ),
                ),
                (
                    "copy_of",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="routing.ruleset",
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
            ],
            options={
                "db_table": "rule_sets",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["draft", "canary", "published", "retired"])
                        ),
                        name="rule_set_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("share_permille__lt", 1000)),
                        name="rule_set_share_bounds",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("state", "published")),
                        fields=("state",),
                        name="rule_set_published_once",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("state", "canary")),
                        fields=("state",),
                        name="rule_set_canary_once",
                    ),
                ],
            },
        ),
        run_sql_file(__file__, "versions.sql"),
    ]
