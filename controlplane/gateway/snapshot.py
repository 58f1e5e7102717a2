"""The configuration that the hot path reads: immutable, replaced when its version changes."""

from functools import cached_property
from hashlib import blake2b
from typing import Literal

import msgspec

from controlplane.kernel.objectives.counting import WatchedObjective
from controlplane.kernel.policies.terms import Policies
from controlplane.kernel.price import PERMILLE, Price, PriceTerms
from controlplane.kernel.prompts import PromptBody
from controlplane.kernel.rules import PRIORITY_NORMAL, CanaryRules, RouteRule, RuleBook
from inference.contract.parts import PICTURE_MARK_TOKENS

SafetyMode = Literal["off", "flag", "block"]
S_PER_MIN = 60
SALT_BYTES = 32


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a key, project or organization may ask for; None where there is no limit.

    `concurrency` is how many requests may be under way at once. `per_user` is what each end user
    may ask for besides, `models` what may be asked of single models.
    """

    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    requests_per_day: int | None = None
    concurrency: int | None = None
    per_user: "Limits | None" = None
    models: "dict[str, Limits]" = {}


NO_LIMITS = Limits()


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One API key. `digest` is its HMAC; `budgets` are the limited scopes it spends from, as hex.

    Ids are 32 hex characters; `limits_id` names its counters, which a rotated key shares with the
    one before. Without `endpoints` it opens all, without `networks` to callers from anywhere. Rules
    may ask for `tags`; `priority` is one of the kernel's. `counted` are the models and the end user
    of one request, which limits of either count by. For the lines of a `batch` the priority is the
    lowest, whatever rules say.
    """

    key_id: str
    id: str
    digest: bytes
    organization: str
    project: str
    label: str
    expires_at_s: float | None
    revoked: bool
    models: frozenset[str] | None
    budgets: tuple[str, ...]
    limits_id: str
    limits: Limits = NO_LIMITS
    endpoints: frozenset[str] | None = None
    networks: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    priority: int = PRIORITY_NORMAL
    counted: tuple[tuple[str, ...], str] | None = None
    batch: bool = False


class ProjectRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a project decides about its requests. `salt` separates prefix caches of tenants.

    Its limits are shared by all its keys. `weight` is its share of full nodes; `content` allows
    explaining cache misses by what its prompts say; `strict` refuses fields that no API has. Its
    requests are counted by their `labels` of these names. `model_budgets` are those of single
    models, `users_budget` is what each end user gets, by their ids. What was said is kept for
    `keeps_days` (0: not at all), sealed with `content_key`, itself wrapped. It demands nothing of
    its requests without `policies`.
    """

    id: str
    organization: str
    safety: SafetyMode
    # The database tells a project without it, whose secret it never sees.
    salt: bytes = b""
    limits: Limits = NO_LIMITS
    weight: int = 1
    content: bool = False
    strict: bool = False
    labels: tuple[str, ...] = ()
    cache_minutes: int = 0
    cache_shared: bool = True
    model_budgets: dict[str, str] = {}
    users_budget: str = ""
    keeps_days: int = 0
    content_key: str = ""
    policies: Policies | None = None

    def cache_salt(self, now_s: float, adapter: str = "") -> bytes:
        """What separates the prefixes of its prompts now (Unix time) from those of others, from its
        own of `cache_minutes` ago, and those of a model from those of its adapters.
        """
        if self.cache_shared and not (self.cache_minutes or adapter):
            return self.salt
        span = now_s // (S_PER_MIN * self.cache_minutes) if self.cache_minutes else 0
        name = f"{'' if self.cache_shared else self.id} {self.cache_minutes} {span:.0f} {adapter}"
        return blake2b(name.encode(), key=self.salt, digest_size=SALT_BYTES).digest()

    def kept(self, sent: dict[str, str]) -> dict[str, str]:
        """Of the labels of a request those that its charge is counted by."""
        return {name: sent[name] for name in self.labels if name in sent} if sent else sent


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One served model: bounds on output length and the price in force.

    A request may have `images_max` images, 0 of a model that does not see. One is made to fit
    `image_tokens_max` squares of `image_patch` pixels a side, each of which is a token.
    `digests` are the approved tokenizers and templates; None allows any. `price` is for everybody
    at normal priority; `overrides` are what single projects, by hex id, agreed on instead.
    """

    name: str
    task: Literal["generate", "embed"]
    pool: str
    context_window: int
    output_tokens_default: int
    output_tokens_max: int
    price: Price
    created_s: int
    owner: str
    digests: frozenset[str] | None = None
    batch_permille: int = PERMILLE
    priority_permille: int = PERMILLE
    overrides: dict[str, PriceTerms] = {}
    images_max: int = 0
    image_tokens_max: int = 0
    image_patch: int = 1

    def seen_tokens(self, pictures: int) -> int:
        """Most tokens that so many pictures can become."""
        return pictures * (self.image_tokens_max + PICTURE_MARK_TOKENS)

    def price_for(self, project: str, priority: int) -> Price:
        """What a project's request of a priority pays from now on, whatever changes later."""
        terms = self.overrides.get(project)
        if terms is None:
            if priority == PRIORITY_NORMAL:
                return self.price
            terms = PriceTerms(
                price=self.price,
                batch_permille=self.batch_permille,
                priority_permille=self.priority_permille,
            )
        return terms.at(priority)


class PromptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored prompt template; `versions` are those that requests may name.

    Without `project` all of its organization's may. `canary` gets `share_permille` of the requests
    that name no version, `published` the others.
    """

    name: str
    project: str | None
    published: int
    canary: int | None
    share_permille: int
    versions: dict[int, PromptBody]

    @property
    def tool(self) -> bool:
        """Whether it is a stored tool instead."""
        return self.versions[self.published].tool is not None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Everything at one version. `budgets` are the ids of all that has one.

    `models` are those in service, `model_names` the names of all that there are.
    `prompts` are found by organization and name: `<id>/<name>`. Of `organizations` only those are
    here that have limits of their own. `tokens_from` tells of users whose earlier Playground tokens
    are void, and `shed_until` until when an objective keeps which priorities out, both in seconds
    of wall time.
    """

    version: int
    keys: dict[str, KeyRecord]
    projects: dict[str, ProjectRecord]
    models: dict[str, ModelRecord]
    model_names: frozenset[str] = frozenset()
    rules: tuple[RouteRule, ...]
    candidate: CanaryRules | None = None
    budgets: frozenset[str] = frozenset()
    prompts: dict[str, PromptRecord] = {}
    organizations: dict[str, Limits] = {}
    tokens_from: dict[str, float] = {}
    objectives: tuple[WatchedObjective, ...] = ()
    shed_until: dict[int, float] = {}

    @cached_property
    def book(self) -> RuleBook:
        """All rules as they are looked up, made at first use."""
        return RuleBook(self.rules, self.candidate)

    @cached_property
    def aliases(self) -> frozenset[str]:
        """Every name that a rule in force has for its requests."""
        return frozenset[str]().union(*(rule.match.aliases for rule in self.rules))


EMPTY = Snapshot(version=0, keys={}, projects={}, models={}, rules=())
