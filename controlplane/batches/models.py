"""Batches as pages read them; `migrations/0001_initial.py` makes the tables."""

from django.db import models


class Batch(models.Model):
    """A file of requests that gateways run where nodes are idle; times are Unix seconds.

    Its counts are lines: `failed` are those with an error, or that were never run.
    """

    id = models.TextField(primary_key=True)
    organization = models.UUIDField()
    project = models.UUIDField()
    key_label = models.TextField()
    endpoint = models.TextField()
    status = models.TextField()
    errors = models.JSONField()
    total = models.IntegerField()
    completed = models.IntegerField()
    failed = models.IntegerField()
    output_file_id = models.TextField(null=True)
    error_file_id = models.TextField(null=True)
    created_at = models.BigIntegerField()
    expires_at = models.BigIntegerField()

    class Meta:
        managed = False
        db_table = "batches"
