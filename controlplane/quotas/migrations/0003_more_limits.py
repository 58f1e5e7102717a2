"""Requests a day and requests at once are limited too, and organizations have limits."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("quotas", "0002_guards")]
    operations = [
        migrations.RemoveConstraint(model_name="ratelimit", name="rate_limit_scope_known"),
        migrations.AddField(
            model_name="ratelimit",
            name="concurrency",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="ratelimit",
            name="requests_per_day",
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name="ratelimit",
            name="scope",
            field=models.CharField(
                choices=[
                    ("key", "Key"),
                    ("project", "Project"),
                    ("organization", "Organization"),
                ],
                max_length=12,
            ),
        ),
        migrations.AddConstraint(
            model_name="ratelimit",
            constraint=models.CheckConstraint(
                condition=models.Q(("scope__in", ["key", "project", "organization"])),
                name="rate_limit_scope_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="ratelimit",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("requests_per_day__isnull", True),
                    models.Q(("requests_per_day__gte", 1), ("requests_per_day__lte", 10**12)),
                    _connector="OR",
                ),
                name="rate_limit_day_bounds",
            ),
        ),
        migrations.AddConstraint(
            model_name="ratelimit",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("concurrency__isnull", True),
                    models.Q(("concurrency__gte", 1), ("concurrency__lte", 1_000_000)),
                    _connector="OR",
                ),
                name="rate_limit_concurrency_bounds",
            ),
        ),
    ]
