"""Tables of quotas."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
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
                        choices=[("key", "Key"), ("project", "Project")], max_length=7
                    ),
                ),
                ("subject_id", models.UUIDField(unique=True)),
                ("requests_per_min", models.PositiveBigIntegerField(blank=True, null=True)),
                ("tokens_per_min", models.PositiveBigIntegerField(blank=True, null=True)),
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
                        condition=models.Q(("scope__in", ["key", "project"])),
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
                ],
            },
        ),
    ]
