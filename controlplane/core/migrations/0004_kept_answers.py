"""Answers to changes that carry an idempotency key."""

import django.utils.timezone
from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [("core", "0002_guards")]
    operations = [
        migrations.CreateModel(
            name="KeptAnswer",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("payload", models.BinaryField(max_length=32)),
                ("status", models.SmallIntegerField()),
                ("body", models.BinaryField(null=True)),
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
        run_sql_file(__file__, "kept_answers.sql"),
    ]
