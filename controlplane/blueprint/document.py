"""The shapes of a configuration document. What is left out is left as it is; `absent` takes away.

Money is in USD; exports quote it so that no float touches it. Keys and secrets are no part of it: a
connection says where its key is read.
"""

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from controlplane.core.permissions import Role
from controlplane.slos.models import Duty

FORM = 1
ENTRIES_MAX = 500
ALERTS_MAX = 10
LABELS_MAX = 8

Name = Annotated[str, Meta(min_length=1, max_length=100)]
# Read by `things`: whoever writes 0.15 without quotes means the same.
Usd = str | int | float


Spec = TypeVar("Spec")
OfModels = Annotated[dict[Name, Spec], Meta(max_length=ENTRIES_MAX)]


class DocumentPart(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every shape shares: unknown fields are refused, and absence is told from null."""


class RemovablePart(DocumentPart):
    """A thing that is taken away where `absent` is true, and nothing else is said of it then."""

    absent: bool = False


class PriceSpec(DocumentPart):
    """USD per million tokens; multipliers in thousandths for requests of low and high priority."""

    input: Usd
    cached: Usd
    output: Usd
    batch_permille: int = 1_000
    priority_permille: int = 1_000


class PurchaseSpec(DocumentPart):
    """What a hosted server charges for tokens: USD per million."""

    input: Usd
    cached: Usd
    output: Usd


class PoolSpec(DocumentPart):
    """A pool of nodes. What the local driver runs is not part of it: that is the operator's."""

    name: Name
    task: Literal["generate", "embed"] | UnsetType = UNSET
    role: Literal["both", "prefill", "decode"] | UnsetType = UNSET
    nodes_min: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    nodes_max: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    warm_schedule: list[dict[str, Any]] | UnsetType = UNSET
    card_hour_usd: Usd | UnsetType = UNSET
    cards_per_node: int | UnsetType = UNSET
    separate_caches: bool | UnsetType = UNSET
    plan_mode: Literal["advice", "signal", "agents"] | UnsetType = UNSET


class ModelSpec(RemovablePart, kw_only=True):
    """A served model and its price in force; null as `purchase`: its tokens are not bought."""

    name: Name
    task: Literal["generate", "embed"] | UnsetType = UNSET
    pool: Name | UnsetType = UNSET
    context_window: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    output_tokens_default: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    output_tokens_max: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    owner: Name | UnsetType = UNSET
    images_max: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    image_tokens_max: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    image_patch: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    price: PriceSpec | UnsetType = UNSET
    purchase: PurchaseSpec | None | UnsetType = UNSET


class KeySource(DocumentPart):
    """Where a provider's key is read: one of an environment variable and a file."""

    env: Name | None = None
    file: Annotated[str, Meta(min_length=1, max_length=1_000)] | None = None


class ConnectionSpec(RemovablePart, kw_only=True):
    """A connection to a provider. `models` are all that it serves: the name here, and the name
    there; each must be a model of the pool of connections. A key that differs is added.
    """

    name: Name
    kind: Name | UnsetType = UNSET
    url: str | UnsetType = UNSET
    api_version: str | UnsetType = UNSET
    region: str | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    key: KeySource | UnsetType = UNSET
    models: OfModels[Name] | UnsetType = UNSET


class DutySpec(DocumentPart):
    """Who has one duty of a stage from today on."""

    team: Name
    email: str = ""


class StageSpec(DocumentPart):
    """Who answers for a stage. `duties` are all that are somebody else's."""

    stage: Name
    team: Name | UnsetType = UNSET
    email: str | UnsetType = UNSET
    budget_us: int | UnsetType = UNSET
    runbook: str | UnsetType = UNSET
    duties: dict[Duty, DutySpec] | UnsetType = UNSET


class ObjectiveSpec(RemovablePart, kw_only=True):
    """An objective in the units of the API, its project by name, its `rules` as `alert_rules`."""

    name: Name
    indicator: Name | UnsetType = UNSET
    target_ppm: int | UnsetType = UNSET
    threshold: int | UnsetType = UNSET
    period_days: int | UnsetType = UNSET
    route: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    project: Name | None | UnsetType = UNSET
    pool: str | UnsetType = UNSET
    region: str | UnsetType = UNSET
    prompt_bucket: int | UnsetType = UNSET
    parts: Annotated[list[dict[str, Any]], Meta(max_length=ENTRIES_MAX)] | UnsetType = UNSET
    alert_rules: list[Name] | UnsetType = UNSET
    absent_after_min: int | UnsetType = UNSET
    team: Name | UnsetType = UNSET
    email: str | UnsetType = UNSET
    runbook: str | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    shed_priority: int | None | UnsetType = UNSET
    stop_canary: bool | UnsetType = UNSET
    shift_version: int | None | UnsetType = UNSET


class MemberSpec(RemovablePart, kw_only=True):
    """A member by the address of their account, which is made where it is missing."""

    email: Name
    role: Role | UnsetType = UNSET


class LimitsSpec(DocumentPart):
    """Limits of an organization or a project; what is left out inside is no limit."""

    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    requests_per_day: int | None = None
    concurrency: int | None = None


class BudgetSpec(DocumentPart):
    """What may be spent in each period."""

    usd: Usd
    period: Literal["none", "day", "week", "month"] = "none"
    zone: Name = "UTC"
    rollover: bool = False
    alerts: Annotated[list[int], Meta(max_length=ALERTS_MAX)] = []


class SpendSpec(DocumentPart):
    """Limits and money of an organization; null as `limits` or `budget` takes them away. Limits of
    users are each user's; `model_limits` are all that there are, by the name of the model.
    """

    name: Name
    limits: LimitsSpec | None | UnsetType = UNSET
    user_limits: LimitsSpec | None | UnsetType = UNSET
    model_limits: OfModels[LimitsSpec] | UnsetType = UNSET
    budget: BudgetSpec | None | UnsetType = UNSET


class ProjectSpendSpec(SpendSpec, kw_only=True):
    """The same of a project. `prices` are all that it pays instead of what others pay."""

    user_budget: BudgetSpec | None | UnsetType = UNSET
    model_budgets: OfModels[BudgetSpec] | UnsetType = UNSET
    prices: dict[Name, PriceSpec] | UnsetType = UNSET


class ProjectSpec(ProjectSpendSpec, kw_only=True):
    """A project. `policies` are all of them, in the form of the kernel's."""

    safety: Literal["off", "flag", "block"] | UnsetType = UNSET
    content: bool | UnsetType = UNSET
    strict: bool | UnsetType = UNSET
    labels: Annotated[list[str], Meta(max_length=LABELS_MAX)] | UnsetType = UNSET
    cache_minutes: int | UnsetType = UNSET
    cache_shared: bool | UnsetType = UNSET
    policies: dict[str, Any] | UnsetType = UNSET
    keeps_days: int | UnsetType = UNSET
    content_readers: list[Role] | UnsetType = UNSET
    weight: int | UnsetType = UNSET


class TemplateSpec(DocumentPart):
    """A prompt template and the body in force, in the form of `kernel.prompts.PromptBody`."""

    name: Name
    project: Name | None | UnsetType = UNSET
    body: dict[str, Any] | UnsetType = UNSET


class OrganizationSpec(SpendSpec, kw_only=True):
    """An organization that there is already, by its name."""

    projects: Annotated[list[ProjectSpec], Meta(max_length=ENTRIES_MAX)] = []
    templates: Annotated[list[TemplateSpec], Meta(max_length=ENTRIES_MAX)] = []
    members: Annotated[list[MemberSpec], Meta(max_length=ENTRIES_MAX)] = []
    objectives: Annotated[list[ObjectiveSpec], Meta(max_length=ENTRIES_MAX)] = []


class RoutingSpec(DocumentPart):
    """All routing rules, in the form of `kernel.rules.RouteRule`; a change is a new version."""

    rules: list[Any]


class DraftedModel(DocumentPart):
    """What a model is to cost."""

    name: Name
    price: PriceSpec


class DraftedOrganization(SpendSpec, kw_only=True):
    """What an organization and its projects are to be limited to, and to pay."""

    projects: Annotated[list[ProjectSpendSpec], Meta(max_length=ENTRIES_MAX)] = []


class DraftsSpec(DocumentPart):
    """What is drafted, to be tried and published by somebody, and not put in force."""

    models: Annotated[list[DraftedModel], Meta(max_length=ENTRIES_MAX)] = []
    organizations: Annotated[list[DraftedOrganization], Meta(max_length=ENTRIES_MAX)] = []


class Document(DocumentPart):
    """A whole configuration, or a part of one; `sluice` is the number of its form."""

    sluice: Literal[1]
    pools: Annotated[list[PoolSpec], Meta(max_length=ENTRIES_MAX)] = []
    models: Annotated[list[ModelSpec], Meta(max_length=ENTRIES_MAX)] = []
    connections: Annotated[list[ConnectionSpec], Meta(max_length=ENTRIES_MAX)] = []
    routing: RoutingSpec | UnsetType = UNSET
    stages: Annotated[list[StageSpec], Meta(max_length=ENTRIES_MAX)] = []
    objectives: Annotated[list[ObjectiveSpec], Meta(max_length=ENTRIES_MAX)] = []
    organizations: Annotated[list[OrganizationSpec], Meta(max_length=ENTRIES_MAX)] = []
    drafts: DraftsSpec | UnsetType = UNSET
