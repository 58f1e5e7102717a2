"""Keys of programs that administer an organization."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("tenants", "0006_key_scopes")]
    operations = [
        migrations.CreateModel(
            name="AdminKey",
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
                ("key_id", models.CharField(max_length=12, unique=True)),
                ("digest", models.BinaryField(max_length=32)),
                ("redacted", models.CharField(max_length=40)),
                ("label", models.CharField(max_length=100)),
                (
                    "actions",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=40), size=None
                    ),
                ),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "organization",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="tenants.organization"
                    ),
                ),
            ],
            options={
                "db_table": "admin_keys",
                "indexes": [
                    models.Index(fields=["organization", "-id"], name="admin_key_newest_first")
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("actions__len__gte", 1)),
                        name="admin_key_does_something",
                    )
                ],
            },
        ),
        run_sql_file(__file__, "admin_keys.sql"),
    ]
