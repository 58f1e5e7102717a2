"""Questions of Explore, saved under a name."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("insights", "0003_worksheets"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="SavedView",
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
                ("name", models.CharField(max_length=80)),
                ("query", models.CharField(max_length=4000)),
                ("shared", models.BooleanField(default=False)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "db_table": "saved_views",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("organization", "owner", "name"), name="view_name_once"
                    )
                ],
            },
        ),
        run_sql_file(__file__, "saved.sql"),
    ]
