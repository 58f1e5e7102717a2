"""What the database knows of nodes and gateways: who may dial in, what was last seen. No load."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint

from controlplane.catalog.models import POOL_NAME, Pool
from controlplane.core.models import BaseModel
from controlplane.tenants.models import DIGEST_BYTES, KEY_ID_CHARS, User

ONE_TOKEN_OF_A_FORM = "one_enrolment_token_of_a_form"


class NodeState(models.TextChoices):
    """Where a node is in its life, as gateways report it."""

    NEW = "new"
    CONNECTED = "connected"
    DRAINING = "draining"
    DISCONNECTED = "disconnected"
    QUARANTINED = "quarantined"


class NodeStatus(models.TextChoices):
    """What staff have decided about a node; gateways follow it within two seconds."""

    PENDING = "pending"
    ACTIVE = "active"
    DRAINING = "draining"
    REMOVED = "removed"


class Node(BaseModel):
    """One node; `facts` are what its hello said (engine, device, blocks, models).

    While `quarantined_until` lies ahead no gateway lets it in. Draining, it may finish what it has
    until `drain_until`.
    """

    name = models.CharField(max_length=100, unique=True)
    pool = models.CharField(max_length=50, validators=[POOL_NAME])
    region = models.CharField(max_length=50, default="local")
    state = models.CharField(max_length=12, choices=NodeState.choices, default=NodeState.NEW)
    standing = models.CharField(max_length=8, choices=NodeStatus.choices, default=NodeStatus.ACTIVE)
    drain_until = models.DateTimeField(null=True, blank=True)
    quarantined_until = models.DateTimeField(null=True, blank=True)
    quarantine_reason = models.CharField(max_length=300, default="", blank=True)
    facts = models.JSONField(default=dict, blank=True)
    last_seen_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "nodes"
        constraints = [
            CheckConstraint(condition=Q(state__in=NodeState.values), name="node_state_known"),
            CheckConstraint(
                condition=Q(standing__in=NodeStatus.values), name="node_standing_known"
            ),
        ]


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


class Gateway(models.Model):
    """A gateway process that lives; rows are written by its own heartbeats and removed without.

    `url` is where nodes dial it, empty where it does not say, and `pools` are those whose nodes it
    takes, all where there are none. Of each rate limit it may count
    1/`share_of` alone while Redis is down, nothing where that is 0.
    """

    instance = models.CharField(max_length=32, primary_key=True)
    url = models.CharField(max_length=200, default="", blank=True)
    pools = ArrayField(models.CharField(max_length=50), default=list, db_default=[], blank=True)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    share_of = models.PositiveIntegerField(default=0)

    class Meta:
        db_table = "gateways"


class EnrolmentToken(BaseModel):
    """Lets one node in, once, until it expires; only its HMAC is kept.

    `approved` decides whether that node serves at once or waits for staff; `form` is the id of the
    form that asked for it.
    """

    key_id = models.CharField(max_length=KEY_ID_CHARS, unique=True)
    digest = models.BinaryField(max_length=DIGEST_BYTES)
    redacted = models.CharField(max_length=40)
    pool = models.CharField(max_length=50, validators=[POOL_NAME])
    allowed_models = ArrayField(models.CharField(max_length=100), null=True, blank=True)
    approved = models.BooleanField(default=False)
    expires_at = models.DateTimeField()
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, null=True, blank=True)
    form = models.UUIDField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "enrolment_tokens"
        constraints = [UniqueConstraint(fields=["created_by", "form"], name=ONE_TOKEN_OF_A_FORM)]


class DigestState(models.TextChoices):
    """What staff have decided about a tokenizer and chat template."""

    WAITING = "waiting"
    APPROVED = "approved"
    REFUSED = "refused"


class ModelDigest(BaseModel):
    """Text assets that a node has offered for a model; none is fetched or served unapproved.

    `digest` is empty for an engine that takes only text. `offered_by` names the first node.
    """

    model = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, blank=True)
    state = models.CharField(max_length=8, choices=DigestState.choices, default=DigestState.WAITING)
    offered_by = models.CharField(max_length=100, default="", blank=True)
    decided_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "model_digests"
        constraints = [
            UniqueConstraint(fields=["model", "digest"], name="model_digest_once"),
            CheckConstraint(
                condition=Q(state__in=DigestState.values), name="model_digest_state_known"
            ),
        ]


class NodeStart(BaseModel):
    """One start of a node process: how long it took until it could serve."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE)
    pool = models.CharField(max_length=50)
    epoch = models.CharField(max_length=100)
    cold_start_ms = models.PositiveIntegerField()

    class Meta:
        db_table = "node_starts"
        constraints = [UniqueConstraint(fields=["node", "epoch"], name="node_start_once")]
        indexes = [Index(fields=["pool", "created_at"], name="node_start_by_pool")]


class NodeConnection(models.Model):
    """A node on one gateway as that gateway told it last; a row without news soon counts for none.

    Written over and over by `fleet_links`, so the table is unlogged: a crash empties it.
    """

    pk = models.CompositePrimaryKey("node_id", "gateway")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="links")
    gateway = models.CharField(max_length=64)
    facts = models.JSONField(default=dict)
    seen_at = models.DateTimeField()

    class Meta:
        db_table = "node_links"


class NodeMoment(models.Model):
    """The most that gateways saw of a node within ten seconds from `at`; none while it was idle.

    Sequences in its step and waiting for one, the share of its KV blocks that is taken, of its
    machine's processors that are busy, and its longest step. Written by `fleet_links`.
    """

    pk = models.CompositePrimaryKey("node_id", "at")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="moments")
    at = models.DateTimeField(db_index=True)
    running = models.IntegerField()
    waiting = models.IntegerField()
    kv_permille = models.SmallIntegerField(null=True, blank=True)
    cpu_permille = models.SmallIntegerField(null=True, blank=True)
    step_us = models.BigIntegerField()

    class Meta:
        db_table = "node_moments"


class GatewayQueue(models.Model):
    """How many requests wait in one gateway, by model and by tenant; unlogged, too."""

    gateway = models.CharField(max_length=64, primary_key=True)
    waiting = models.JSONField(default=dict)
    seen_at = models.DateTimeField()

    class Meta:
        db_table = "gateway_queues"


class PoolScale(models.Model):
    """The autoscaling signal of a pool and what its hysteresis remembers (`scaling.py`)."""

    pool = models.OneToOneField(Pool, on_delete=models.CASCADE, primary_key=True)
    desired = models.PositiveIntegerField()
    low_since = models.DateTimeField(null=True, blank=True)
    low_peak = models.PositiveIntegerField(default=0)
    evaluated_at = models.DateTimeField()

    class Meta:
        db_table = "pool_scales"


class PoolPlan(models.Model):
    """The latest plan of a pool: nodes that keep its promises within its bounds, and why.

    `settle_s` is how long less must have been wanted before there is less. Past `until` it counts
    for nothing.
    """

    pool = models.OneToOneField(Pool, on_delete=models.CASCADE, primary_key=True)
    nodes = models.PositiveIntegerField()
    settle_s = models.FloatField()
    reasons = models.JSONField()
    made_at = models.DateTimeField()
    until = models.DateTimeField()

    class Meta:
        db_table = "pool_plans"


class NodeHour(models.Model):
    """How long gateways saw a node in one hour, of a pool at a price; written by `fleet_links`.

    Of `up_ms`, it had requests under way in `busy_ms`, sampled at every look. Kept when the node is
    gone: it was paid for.
    """

    pk = models.CompositePrimaryKey("hour", "node", "pool", "card_hour_micro", "cards_per_node")
    hour = models.DateTimeField()
    node = models.UUIDField()
    pool = models.TextField()
    card_hour_micro = models.BigIntegerField()
    cards_per_node = models.IntegerField()
    up_ms = models.BigIntegerField()
    busy_ms = models.BigIntegerField()

    class Meta:
        db_table = "node_hours"
