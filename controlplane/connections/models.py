"""Connections, their keys and models, and what providers say that they charge."""

from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from django.db.models import CheckConstraint, Q, UniqueConstraint

from controlplane.catalog.models import MODEL_NAME, Model
from controlplane.core.models import BaseModel

CONNECTION_NAME = RegexValidator(
    r"\A[a-z0-9][a-z0-9-]{0,49}\Z", "Use a-z, 0-9 and - only, at most 50."
)
REGION = RegexValidator(r"\A[a-z0-9-]{0,50}\Z", "Use a-z, 0-9 and - only, at most 50.")
API_VERSION = RegexValidator(r"\A[A-Za-z0-9.-]{0,40}\Z", "Use letters, digits, . and - only.")
URL_CHARS_MAX = 300
# A provider's charge for one model on one day; more is a slip of the unit.
AMOUNT_NANO_MAX = 10_000_000 * 1_000_000_000


class ProviderKind(models.TextChoices):
    """Whose API a connection speaks."""

    OPENAI = "openai", "OpenAI"
    AZURE = "azure", "Azure OpenAI"
    ANTHROPIC = "anthropic", "Anthropic"
    OTHER = "other", "Other, OpenAI-compatible"


class Connection(BaseModel):
    """An account at a provider. `listed` are the models that it named when it was tested last.

    One that is removed keeps its row, without its keys, since what was spent refers to it.
    """

    name = models.CharField(max_length=50, validators=[CONNECTION_NAME])
    kind = models.CharField(max_length=10, choices=ProviderKind.choices)
    url = models.CharField(max_length=URL_CHARS_MAX)
    api_version = models.CharField(max_length=40, default="", blank=True, validators=[API_VERSION])
    region = models.CharField(max_length=50, default="", blank=True, validators=[REGION])
    enabled = models.BooleanField(default=True)
    listed = models.JSONField(default=list, blank=True)
    outcome = models.CharField(max_length=20, default="", blank=True)
    tested_at = models.DateTimeField(null=True, blank=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "connections"
        constraints = [
            UniqueConstraint(
                fields=["name"], condition=Q(removed_at=None), name="connection_name_once"
            ),
            CheckConstraint(
                condition=Q(kind__in=ProviderKind.values), name="connection_kind_known"
            ),
        ]


class ConnectionKey(BaseModel):
    """A provider's key, sealed for its row; of one that is retired only its end is kept."""

    connection = models.ForeignKey(Connection, on_delete=models.PROTECT, related_name="keys")
    sealed = models.BinaryField(null=True)
    shown = models.CharField(max_length=4)
    retired_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "connection_keys"
        constraints = [
            CheckConstraint(
                condition=Q(retired_at=None, sealed__isnull=False)
                | Q(retired_at__isnull=False, sealed=None),
                name="connection_key_forgotten_when_retired",
            )
        ]


class ConnectionModel(BaseModel):
    """A model of the catalogue that a connection serves, and what the provider calls it."""

    connection = models.ForeignKey(Connection, on_delete=models.PROTECT, related_name="offers")
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="+")
    upstream = models.CharField(max_length=100, validators=[MODEL_NAME])
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "connection_models"
        constraints = [
            # So that every token of a model is bought in one place, at one price.
            UniqueConstraint(
                fields=["model"], condition=Q(withdrawn_at=None), name="connection_of_model_once"
            )
        ]


class ProviderAmount(BaseModel):
    """What a provider says that it charges for one of its models on one UTC day, in nano-USD."""

    connection = models.ForeignKey(Connection, on_delete=models.PROTECT, related_name="amounts")
    day = models.DateField()
    upstream = models.CharField(max_length=100, validators=[MODEL_NAME])
    nano = models.PositiveBigIntegerField(validators=[MaxValueValidator(AMOUNT_NANO_MAX)])

    class Meta:
        db_table = "provider_amounts"
        constraints = [
            UniqueConstraint(fields=["connection", "day", "upstream"], name="provider_amount_once")
        ]
