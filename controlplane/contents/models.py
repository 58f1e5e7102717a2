"""What was said, as pages read it: of each request that its project keeps, one sealed row."""

from django.contrib.postgres.fields import ArrayField
from django.db import models


class KeptContentRow(models.Model):
    """All of it is in `sealed`; `terms` are hashes by which it is found (`contents/sealing.py`)."""

    request = models.UUIDField(primary_key=True)
    organization = models.UUIDField()
    project = models.UUIDField()
    terms = ArrayField(models.BigIntegerField())
    sealed = models.BinaryField()

    class Meta:
        """Made by `sql/tables.sql`, kept as long as its project says."""

        managed = False
        db_table = "kept_contents"
