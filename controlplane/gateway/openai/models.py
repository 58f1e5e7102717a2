"""`GET /v1/models` and `/v1/models/{id}`: what the key in hand may use."""

from typing import Literal

import msgspec

from controlplane.gateway.refusal import unknown_model
from controlplane.gateway.snapshot import KeyRecord, ModelRecord, Snapshot
from controlplane.kernel.rules import Facts, RouteRule, mismatch


class ModelFacts(msgspec.Struct):
    """A model that the key may use; sizes in tokens."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_window: int
    max_output_tokens: int


class ModelList(msgspec.Struct):
    """All of them, at once."""

    object: Literal["list"]
    data: list[ModelFacts]
    has_more: bool


def list_models(snapshot: Snapshot, key: KeyRecord) -> bytes:
    """All that the key may name, in order: models, and aliases that a rule in force leads on."""
    names = sorted(snapshot.models.keys() | snapshot.aliases)
    found = [(name, _named(snapshot, key, name)) for name in names]
    data = [_model(name, model) for name, model in found if model is not None]
    return msgspec.json.encode(ModelList("list", data, has_more=False))


def show_model(snapshot: Snapshot, key: KeyRecord, name: str) -> bytes:
    """One model; raises `Refusal` (404) when there is none or the key may not use it."""
    model = _named(snapshot, key, name)
    if model is None:
        raise unknown_model(name)
    return msgspec.json.encode(_model(name, model))


def _named(snapshot: Snapshot, key: KeyRecord, name: str) -> ModelRecord | None:
    """The model of a name; for an alias the first in service that a rule has for this key."""
    if key.models is not None and name not in key.models:
        return None
    if name in snapshot.models or name not in snapshot.aliases:
        return snapshot.models.get(name)
    rules = [rule for rule in snapshot.rules if _leads(rule, key, name)]
    targets = (target for rule in rules for step in rule.steps for target in step.targets)
    models = (snapshot.models.get(target.model) for target in targets)
    return next(filter(None, models), None)


def _leads(rule: RouteRule, key: KeyRecord, name: str) -> bool:
    """Whether the rule takes some request of this key for the alias, of whatever size and task."""
    facts = Facts(
        alias=name,
        task="",
        organization=key.organization,
        project=key.project,
        tags=key.tags,
        priority=key.priority,
    )
    match = msgspec.structs.replace(
        rule.match, tasks=frozenset(), prompt_tokens_min=0, prompt_tokens_max=None
    )
    return name in rule.match.aliases and mismatch(match, facts) is None


def _model(name: str, model: ModelRecord) -> ModelFacts:
    window, output = model.context_window, model.output_tokens_max
    return ModelFacts(name, "model", model.created_s, model.owner, window, output)
