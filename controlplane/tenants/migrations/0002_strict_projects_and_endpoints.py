"""Strict projects, and keys for the endpoints of all API shapes."""

from django.db import migrations, models

ENDPOINTS = [
    "chat", "messages", "responses", "completions", "embeddings", "rerank", "score", "moderations",
    "tokenize", "models", "key",
]  # fmt: skip


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="project",
            name="strict",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.RemoveConstraint(model_name="apikey", name="api_key_endpoints_known"),
        migrations.AddConstraint(
            model_name="apikey",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("allowed_endpoints__isnull", True),
                    ("allowed_endpoints__contained_by", ENDPOINTS),
                    _connector="OR",
                ),
                name="api_key_endpoints_known",
            ),
        ),
    ]
