"""What /v1/organization/ answers, field by field as existing tools of OpenAI's API read it."""

from typing import Any, NotRequired, TypedDict

from controlplane.kernel.ids import ApiKeyId, AuditEntryId, ProjectId


class Amount(TypedDict):
    """`value` in USD; `nano_usd` is the same amount exactly."""

    value: float
    currency: str
    nano_usd: int


class CostResult(TypedDict):
    """What a group was charged; `line_item` is the model."""

    object: str
    amount: Amount
    line_item: str | None
    project_id: ProjectId | None
    api_key_id: ApiKeyId | None
    user_id: str | None


class UsageResult(TypedDict):
    """Tokens and requests of a group; `input_tokens` are the cached and the uncached together."""

    object: str
    input_tokens: int
    input_uncached_tokens: int
    input_cached_tokens: int
    input_cache_write_tokens: int
    input_audio_tokens: int
    output_tokens: int
    output_audio_tokens: int
    num_model_requests: int
    project_id: ProjectId | None
    user_id: str | None
    api_key_id: ApiKeyId | None
    model: str | None
    batch: None
    service_tier: None


class UsageBucket(TypedDict):
    """One bucket of usage; times in Unix seconds."""

    object: str
    start_time: int
    end_time: int
    results: list[UsageResult]


class CostBucket(TypedDict):
    """One bucket of costs; times in Unix seconds."""

    object: str
    start_time: int
    end_time: int
    results: list[CostResult]


class About(TypedDict):
    """What a page says of itself; what was booked after `sealed_through` is not in it yet."""

    object: str
    has_more: bool
    next_page: str | None
    sealed_through: int | None


class UsagePage(About):
    """Buckets of usage, in order."""

    data: list[UsageBucket]


class CostPage(About):
    """Buckets of costs, in order."""

    data: list[CostBucket]


class OpenAIProjectJson(TypedDict):
    """A project."""

    id: ProjectId
    object: str
    name: str
    created_at: int
    archived_at: None
    status: str


class KeyOwner(TypedDict):
    """Who made a key: a user, or the operator as a service account."""

    type: str
    user: NotRequired[dict[str, Any]]
    service_account: NotRequired[dict[str, Any]]


class ProjectKeyJson(TypedDict):
    """An inference key without its secret."""

    id: ApiKeyId
    object: str
    name: str
    redacted_value: str
    created_at: int
    last_used_at: int | None
    expires_at: int | None
    owner_project_access: str
    owner: KeyOwner


class AuditLogJson(TypedDict):
    """A change; what it was about and its facts are under the name that `type` has."""

    id: AuditEntryId
    type: str
    effective_at: int
    actor: dict[str, Any]
    subject: dict[str, Any]
    detail: dict[str, Any]
