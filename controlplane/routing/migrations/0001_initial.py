"""Tables of routing."""

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
                ("note", models.CharField(blank=True, default="", max_length=200)),
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
            },
        ),
        migrations.CreateModel(
            name="RouteRule",
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
                ("position", models.PositiveIntegerField()),
                ("name", models.CharField(max_length=100)),
                ("alias", models.CharField(blank=True, max_length=100, null=True)),
                ("project_id", models.UUIDField(blank=True, null=True)),
                ("model", models.CharField(max_length=100)),
                ("pool", models.CharField(max_length=50)),
                (
                    "rule_set",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="rules",
                        to="routing.ruleset",
                    ),
                ),
            ],
            options={
                "db_table": "route_rules",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("rule_set", "position"), name="rule_position_once"
                    )
                ],
            },
        ),
    ]
