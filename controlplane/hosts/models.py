"""What the database knows of hosts and deployments: what staff want, and what agents told last."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import CheckConstraint, Q, UniqueConstraint

from controlplane.core.models import BaseModel
from controlplane.tenants.models import DIGEST_BYTES, KEY_ID_CHARS

HOST_CHARS_MAX = 50
SOURCES = ("folder", "hub")


class Host(BaseModel):
    """A machine. Until its agent has enrolled, `digest` is of its one-time token, then of its own
    credential; only the HMAC is kept. `inventory` is what it told last, at `seen_at`. A removed one
    goes when its agent has drained all that runs there.
    """

    name = models.CharField(max_length=HOST_CHARS_MAX, unique=True)
    key_id = models.CharField(max_length=KEY_ID_CHARS, unique=True)
    digest = models.BinaryField(max_length=DIGEST_BYTES)
    redacted = models.CharField(max_length=40)
    token_expires_at = models.DateTimeField()
    enrolled_at = models.DateTimeField(null=True, blank=True)
    inventory = models.JSONField(default=dict, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "hosts"


class Deployment(BaseModel):
    """A model that should run as so many nodes; `hosts` empty is wherever it fits.

    Each change of what runs is a new `generation`, whose replicas take over one by one. `commit` is
    what `revision` of the hub was found to be, once; `sizes` are what hosts said of the model,
    `files_digest` what its first replica had, all of this generation. `message` says why replicas
    are not placed. A removed one goes with its last replica.
    """

    name = models.CharField(max_length=HOST_CHARS_MAX, unique=True)
    model = models.CharField(max_length=100)
    engine = models.CharField(max_length=20)
    source_kind = models.CharField(max_length=10)
    source_name = models.CharField(max_length=500)
    revision = models.CharField(max_length=100, default="", blank=True)
    commit = models.CharField(max_length=100, default="", blank=True)
    arguments = models.JSONField(default=dict, blank=True)
    window = models.PositiveIntegerField()
    sequences = models.PositiveIntegerField()
    replicas = models.PositiveIntegerField()
    schedule = models.JSONField(default=list, blank=True)
    hosts = ArrayField(models.CharField(max_length=HOST_CHARS_MAX), default=list, blank=True)
    generation = models.PositiveIntegerField(default=1)
    sizes = models.JSONField(default=dict, blank=True)
    files_digest = models.CharField(max_length=64, default="", blank=True)
    message = models.TextField(default="", blank=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "deployments"
        constraints = [
            CheckConstraint(condition=Q(source_kind__in=SOURCES), name="deployment_source_known"),
        ]


class DeploymentReplica(BaseModel):
    """One node of a deployment on a host, with the memory that it was given there.

    `told` is its agent's last word. One that is `leaving` is drained, and goes when its agent no
    longer has it.
    """

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="placed")
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="placed")
    node_name = models.CharField(max_length=100)
    generation = models.PositiveIntegerField()
    source_kind = models.CharField(max_length=10)
    source_name = models.CharField(max_length=500)
    revision = models.CharField(max_length=100, default="", blank=True)
    engine = models.CharField(max_length=20)
    arguments = models.JSONField(default=dict, blank=True)
    window = models.PositiveIntegerField()
    gpu = models.PositiveIntegerField(null=True, blank=True)
    kv = models.BigIntegerField()
    need = models.BigIntegerField()
    leaving = models.BooleanField(default=False)
    told = models.JSONField(default=dict, blank=True)

    class Meta:
        db_table = "deployment_replicas"
        constraints = [UniqueConstraint(fields=["node_name"], name="replica_node_once")]
