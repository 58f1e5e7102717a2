"""What the database knows of nodes: who may dial in, what was last seen. Load is not kept here."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from controlplane.catalog.models import POOL_NAME
from controlplane.core.models import BaseModel
from controlplane.tenants.models import DIGEST_BYTES, KEY_ID_CHARS, User


class NodeState(models.TextChoices):
    """Where a node is in its life, as gateways report it."""

    NEW = "new"
    CONNECTED = "connected"
    DRAINING = "draining"
    DISCONNECTED = "disconnected"
    QUARANTINED = "quarantined"


class Node(BaseModel):
    """One node; `facts` are what its hello said (engine, device, blocks, models)."""

    name = models.CharField(max_length=100, unique=True)
    pool = models.CharField(max_length=50, validators=[POOL_NAME])
    region = models.CharField(max_length=50, default="local")
    state = models.CharField(max_length=12, choices=NodeState.choices, default=NodeState.NEW)
    facts = models.JSONField(default=dict, blank=True)
    last_seen_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "nodes"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=NodeState.values), name="node_state_known"
            )
        ]

    def __str__(self) -> str:
        return self.name


class NodeCredential(BaseModel):
    """What a node dials in with; only its HMAC is kept. `allowed_models` None allows any model."""

    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="credentials")
    key_id = models.CharField(max_length=KEY_ID_CHARS, unique=True)
    digest = models.BinaryField(max_length=DIGEST_BYTES)
    redacted = models.CharField(max_length=40)
    allowed_models = ArrayField(models.CharField(max_length=100), null=True, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_reason = models.CharField(max_length=200, default="", blank=True)

    class Meta:
        db_table = "node_credentials"

    def __str__(self) -> str:
        return self.redacted
