"""Models that are served and the versions of their prices. A price version never changes."""

from django.core.validators import RegexValidator
from django.db import models

from controlplane.core.models import BaseModel
from controlplane.tenants.models import User

MODEL_NAME = RegexValidator(
    r"\A[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}\Z",
    "Use letters, digits and . _ : / - only, at most 100 characters.",
)
POOL_NAME = RegexValidator(r"\A[a-z0-9][a-z0-9-]{0,49}\Z", "Use a-z, 0-9 and - only, at most 50.")
CONTEXT_TOKENS_MAX = 10_000_000


class Task(models.TextChoices):
    """What a model does."""

    GENERATE = "generate"
    EMBED = "embed"


class Model(BaseModel):
    """A served model and the bounds of its output, 0 where it embeds.

    `owner` is what `/v1/models` shows.
    """

    name = models.CharField(max_length=100, unique=True, validators=[MODEL_NAME])
    task = models.CharField(max_length=8, choices=Task.choices, default=Task.GENERATE)
    pool = models.CharField(max_length=50, validators=[POOL_NAME])
    context_window = models.PositiveIntegerField()
    output_tokens_default = models.PositiveIntegerField()
    output_tokens_max = models.PositiveIntegerField()
    enabled = models.BooleanField(default=True)
    owner = models.CharField(max_length=100, default="sluice")

    class Meta:
        db_table = "models"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(task__in=Task.values), name="model_task_known"
            ),
            models.CheckConstraint(
                condition=models.Q(context_window__gte=1)
                & models.Q(context_window__lte=CONTEXT_TOKENS_MAX),
                name="model_context_window_bounds",
            ),
            models.CheckConstraint(
                condition=models.Q(task=Task.EMBED, output_tokens_default=0, output_tokens_max=0)
                | models.Q(task=Task.GENERATE, output_tokens_default__gte=1)
                & models.Q(output_tokens_default__lte=models.F("output_tokens_max"))
                & models.Q(output_tokens_max__lte=models.F("context_window")),
                name="model_output_bounds",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class PriceVersion(BaseModel):
    """Prices in pico-USD per token (= micro-USD per million) from a moment on; immutable."""

    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="prices")
    version = models.PositiveIntegerField()
    input_pico = models.PositiveBigIntegerField()
    cached_pico = models.PositiveBigIntegerField()
    output_pico = models.PositiveBigIntegerField()
    effective_from = models.DateTimeField()
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)

    class Meta:
        db_table = "price_versions"
        constraints = [
            models.UniqueConstraint(fields=["model", "version"], name="price_version_once"),
            models.CheckConstraint(
                condition=models.Q(cached_pico__lte=models.F("input_pico")),
                name="price_cached_at_most_input",
            ),
        ]
        indexes = [models.Index(fields=["effective_from"], name="price_effective")]

    def __str__(self) -> str:
        return f"{self.model_id} v{self.version}"
