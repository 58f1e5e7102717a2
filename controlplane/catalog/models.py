"""Models that are served, the versions of their prices, and the pools of nodes that serve them."""

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import CheckConstraint, F, Index, Q, UniqueConstraint

from controlplane.catalog.warm import NODES_MOST
from controlplane.core.models import BaseModel
from controlplane.core.versions.models import State, Version
from controlplane.kernel.rules import PERMILLE
from controlplane.tenants.models import Organization, Project, User

MODEL_NAME = RegexValidator(
    r"\A[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}\Z",
    "Use letters, digits and . _ : / - only, at most 100 characters.",
)
POOL_NAME = RegexValidator(r"\A[a-z0-9][a-z0-9-]{0,49}\Z", "Use a-z, 0-9 and - only, at most 50.")
CONTEXT_TOKENS_MAX = 10_000_000
IMAGES_MOST, IMAGE_TOKENS, IMAGE_PATCHES = 64, (1, 16_384), (4, 1_024)
START_COMMAND_CHARS_MAX = 1_000
# A hundred times the price.
PERMILLE_MAX = 100_000
# 1,000 USD a card and hour; anything above it is a slip of the unit.
CARD_HOUR_MICRO_MAX = 1_000_000_000
CARDS_PER_NODE_MAX = 1_024
PROMPT_NAME = RegexValidator(
    r"\A[a-z0-9][a-z0-9_-]{0,63}\Z", "Use a-z, 0-9, _ and - only, at most 64."
)


class Task(models.TextChoices):
    GENERATE = "generate"
    EMBED = "embed"


class PoolRole(models.TextChoices):
    """Which phases of a request its nodes run."""

    BOTH = "both"
    PREFILL = "prefill"
    DECODE = "decode"


class PlanMode(models.TextChoices):
    """Who follows the plan of a pool: nobody, autoscalers by the signal, or also agents."""

    ADVICE = "advice", "Advice only"
    SIGNAL = "signal", "Autoscalers follow it"
    AGENTS = "agents", "Agents follow it, too"


class Pool(BaseModel):
    """Nodes that can stand in for each other, and how many of them there should be.

    `warm_schedule` is read by `warm.windows_from`; `start_command` is what the local driver runs.
    Models, rules and nodes say a pool by its name, which never changes. `card_hour_micro` is what
    one card costs an hour in micro-USD, 0 where no one has said. With `separate_caches` its nodes
    get jobs only if no tenant can find out by timing what another has asked.
    """

    name = models.CharField(max_length=50, unique=True, validators=[POOL_NAME])
    task = models.CharField(max_length=8, choices=Task.choices, default=Task.GENERATE)
    role = models.CharField(max_length=7, choices=PoolRole.choices, default=PoolRole.BOTH)
    nodes_min = models.PositiveIntegerField(default=0)
    nodes_max = models.PositiveIntegerField(default=1)
    warm_schedule = models.JSONField(default=list, blank=True)
    start_command = models.CharField(max_length=START_COMMAND_CHARS_MAX, default="", blank=True)
    card_hour_micro = models.PositiveBigIntegerField(default=0)
    cards_per_node = models.PositiveSmallIntegerField(default=1)
    separate_caches = models.BooleanField(default=False)
    plan_mode = models.CharField(
        max_length=6, choices=PlanMode.choices, default=PlanMode.ADVICE, db_default=PlanMode.ADVICE
    )

    class Meta:
        db_table = "pools"
        constraints = [
            CheckConstraint(condition=Q(plan_mode__in=PlanMode.values), name="pool_plan_known"),
            CheckConstraint(condition=Q(task__in=Task.values), name="pool_task_known"),
            CheckConstraint(condition=Q(role__in=PoolRole.values), name="pool_role_known"),
            CheckConstraint(
                condition=Q(nodes_max__gte=F("nodes_min")) & Q(nodes_max__lte=NODES_MOST),
                name="pool_nodes_bounds",
            ),
            CheckConstraint(
                condition=Q(
                    card_hour_micro__lte=CARD_HOUR_MICRO_MAX,
                    cards_per_node__gte=1,
                    cards_per_node__lte=CARDS_PER_NODE_MAX,
                ),
                name="pool_cost_bounds",
            ),
        ]

    @property
    def prefills_only(self) -> bool:
        """Whether its nodes only compute prompts, for nodes of another pool."""
        return self.role == PoolRole.PREFILL


class Model(BaseModel):
    """A served model and the bounds of its output, 0 where it embeds.

    `owner` is what `/v1/models` shows. A request may have `images_max` images, 0 for a model that
    does not see; each is shrunk to `image_tokens_max` squares of `image_patch` pixels a side. One
    that is removed keeps its row, since prices and charges refer to it, until it is added again.
    """

    name = models.CharField(max_length=100, unique=True, validators=[MODEL_NAME])
    task = models.CharField(max_length=8, choices=Task.choices, default=Task.GENERATE)
    pool = models.CharField(max_length=50, validators=[POOL_NAME])
    context_window = models.PositiveIntegerField()
    output_tokens_default = models.PositiveIntegerField()
    output_tokens_max = models.PositiveIntegerField()
    enabled = models.BooleanField(default=True)
    owner = models.CharField(max_length=100, default="sluice")
    images_max = models.PositiveSmallIntegerField(default=0, db_default=0)
    image_tokens_max = models.PositiveIntegerField(default=1_280, db_default=1_280)
    image_patch = models.PositiveSmallIntegerField(default=28, db_default=28)
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "models"
        constraints = [
            CheckConstraint(condition=Q(task__in=Task.values), name="model_task_known"),
            CheckConstraint(
                condition=Q(context_window__gte=1) & Q(context_window__lte=CONTEXT_TOKENS_MAX),
                name="model_context_window_bounds",
            ),
            CheckConstraint(
                condition=Q(task=Task.EMBED, output_tokens_default=0, output_tokens_max=0)
                | Q(task=Task.GENERATE, output_tokens_default__gte=1)
                & Q(output_tokens_default__lte=F("output_tokens_max"))
                & Q(output_tokens_max__lte=F("context_window")),
                name="model_output_bounds",
            ),
            models.CheckConstraint(
                condition=(models.Q(task=Task.GENERATE) | models.Q(images_max=0))
                & models.Q(
                    images_max__lte=IMAGES_MOST,
                    image_tokens_max__range=IMAGE_TOKENS,
                    image_patch__range=IMAGE_PATCHES,
                ),
                name="model_image_bounds",
            ),
            CheckConstraint(
                condition=Q(removed_at=None) | Q(enabled=False), name="model_removed_is_off"
            ),
        ]


class PriceVersion(BaseModel):
    """Prices in pico-USD per token (= micro-USD per million) from a moment on; immutable.

    With a `project` it is what that project pays instead of the others; one that ends where it
    begins takes an override away. The multipliers, in thousandths, are for requests of low and of
    high priority.
    """

    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="prices")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True)
    version = models.PositiveIntegerField()
    input_pico = models.PositiveBigIntegerField()
    cached_pico = models.PositiveBigIntegerField()
    output_pico = models.PositiveBigIntegerField()
    batch_permille = models.PositiveIntegerField(default=1_000)
    priority_permille = models.PositiveIntegerField(default=1_000)
    effective_from = models.DateTimeField()
    effective_until = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)

    class Meta:
        db_table = "price_versions"
        constraints = [
            UniqueConstraint(fields=["model", "version"], name="price_version_once"),
            CheckConstraint(
                condition=Q(cached_pico__lte=F("input_pico")), name="price_cached_at_most_input"
            ),
            CheckConstraint(
                condition=Q(batch_permille__lte=PERMILLE_MAX)
                & Q(priority_permille__lte=PERMILLE_MAX),
                name="price_multiplier_bounds",
            ),
            CheckConstraint(
                condition=Q(effective_until__isnull=True)
                | Q(project__isnull=False) & Q(effective_until__gte=F("effective_from")),
                name="price_ends_for_projects_only",
            ),
        ]
        indexes = [Index(fields=["effective_from"], name="price_effective")]


class PurchasePrice(BaseModel):
    """What tokens of a model cost to buy from a UTC day on, in pico-USD per token; never changed.

    Of two of one day the later one counts.
    """

    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="purchases")
    from_day = models.DateField()
    input_pico = models.PositiveBigIntegerField()
    cached_pico = models.PositiveBigIntegerField()
    output_pico = models.PositiveBigIntegerField()
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)

    class Meta:
        db_table = "purchase_prices"
        constraints = [
            CheckConstraint(
                condition=Q(cached_pico__lte=F("input_pico")), name="purchase_cached_at_most_input"
            )
        ]


class PromptTemplate(BaseModel):
    """A stored prompt that requests name instead of sending it; for one project, or for all.

    Its name never changes: requests are written with it.
    """

    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="+")
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    name = models.CharField(max_length=64, validators=[PROMPT_NAME])

    class Meta:
        db_table = "prompt_templates"
        constraints = [
            UniqueConstraint(fields=["organization", "name"], name="prompt_name_once"),
            UniqueConstraint(fields=["id", "organization"], name="prompt_with_organization"),
        ]


class PromptVersion(Version):
    """One version: `body` has the form of `kernel.prompts.PromptBody` and changes only in a draft.

    On trial, `share_permille` of the requests that name no version get it.
    """

    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="+")
    template = models.ForeignKey(PromptTemplate, on_delete=models.PROTECT, related_name="versions")
    body = models.JSONField()

    class Meta:
        db_table = "prompt_versions"
        constraints = [
            UniqueConstraint(fields=["template", "version"], name="prompt_version_once"),
            CheckConstraint(condition=Q(state__in=State.values), name="prompt_state_known"),
            CheckConstraint(condition=Q(share_permille__lt=PERMILLE), name="prompt_share_bounds"),
            UniqueConstraint(
                fields=["template"],
                condition=Q(state=State.PUBLISHED),
                name="prompt_published_once",
            ),
            UniqueConstraint(
                fields=["template"], condition=Q(state=State.CANARY), name="prompt_canary_once"
            ),
        ]
