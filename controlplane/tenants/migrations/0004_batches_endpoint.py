"""Keys for files and batches."""

from django.db import migrations, models

ENDPOINTS = [
    "chat", "messages", "responses", "completions", "embeddings", "rerank", "score", "moderations",
    "tokenize", "batches", "models", "key",
]  # fmt: skip


class Migration(migrations.Migration):
    dependencies = [("tenants", "0003_labels_of_projects")]

    operations = [
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
