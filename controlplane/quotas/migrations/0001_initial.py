"""Table of quotas."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("core", "0001_initial"),
        ("tenants", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="RateLimit",
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
                (
                    "scope",
                    models.CharField(
                        choices=[
                            ("key", "Key"),
                            ("project", "Project"),
                            ("organization", "Organization"),
                        ],
                        max_length=12,
                    ),
                ),
                ("subject_id", models.UUIDField(unique=True)),
                ("requests_per_min", models.PositiveBigIntegerField(blank=True, null=True)),
                ("tokens_per_min", models.PositiveBigIntegerField(blank=True, null=True)),
                ("requests_per_day", models.PositiveBigIntegerField(blank=True, null=True)),
                ("concurrency", models.PositiveIntegerField(blank=True, null=True)),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="tenants.organization"
                    ),
                ),
            ],
            options={
                "db_table": "rate_limits",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("scope__in", ["key", "project", "organization"])),
                        name="rate_limit_scope_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("requests_per_min__isnull", True),
                            models.Q(
                                ("requests_per_min__gte", 1), ("requests_per_min__lte", 1000000000)
                            ),
                            _connector="OR",
                        ),
                        name="rate_limit_requests_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("tokens_per_min__isnull", True),
                            models.Q(
                                ("tokens_per_min__gte", 1), ("tokens_per_min__lte", 1000000000)
                            ),
                            _connector="OR",
                        ),
                        name="rate_limit_tokens_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("requests_per_day__isnull", True),
                            models.Q(
                                ("requests_per_day__gte", 1),
                                ("requests_per_day__lte", 1000000000000),
                            ),
                            _connector="OR",
                        ),
                        name="rate_limit_day_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("concurrency__isnull", True),
                            models.Q(("concurrency__gte", 1), ("concurrency__lte", 1000000)),
                            _connector="OR",
                        ),
                        name="rate_limit_concurrency_bounds",
                    ),
                ],
            },
        ),
        run_sql_file(__file__, "guards.sql"),
    ]
