"""`GET /v1/models` and `/v1/models/{id}`: what the key in hand may use."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from controlplane.gateway.nodes.models import ServedModel
from controlplane.gateway.refusal import unknown_model
from controlplane.gateway.snapshot import KeyRecord, ModelRecord, Snapshot
from controlplane.kernel.money import usd_from_micro
from controlplane.kernel.rules import LARGEST, Facts, RouteRule, class_targets, mismatch
from inference.contract.capabilities import Capability

NO_ENDS = {"first_id": None, "last_id": None}


class ModelFacts(msgspec.Struct):
    """A model that the key may use; sizes in tokens.

    `abilities` are those of the nodes that serve it now. `pricing` is what the key pays for a
    million tokens in US dollars, by the price version in force.
    """

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_window: int
    max_output_tokens: int
    abilities: list[str]
    pricing: dict[str, str | int]


class ModelList(msgspec.Struct):
    """All of them, at once."""

    object: Literal["list"]
    data: list[ModelFacts]
    has_more: bool


class Shelf(msgspec.Struct, frozen=True):
    """What there is, for whom, and what nodes serve; Anthropic's clients read other fields."""

    snapshot: Snapshot
    key: KeyRecord
    served: Mapping[str, ServedModel]
    anthropic: bool

    def list(self) -> bytes:
        """All that the key may name, in order: models, and aliases that a rule leads on."""
        names = sorted(self.snapshot.models.keys() | self.snapshot.aliases)
        found = [(name, _named(self.snapshot, self.key, name)) for name in names]
        data = [self._shown(name, model) for name, model in found if model is not None]
        if not self.anthropic:
            return msgspec.json.encode(ModelList("list", data, has_more=False))
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else NO_ENDS
        return msgspec.json.encode({"data": data, "has_more": False, **ends})

    def show(self, name: str) -> bytes:
        """One model; raises `Refusal` (404) when there is none or the key may not use it."""
        model = _named(self.snapshot, self.key, name)
        if model is None:
            raise unknown_model(name)
        return msgspec.json.encode(self._shown(name, model))

    def _shown(self, name: str, model: ModelRecord) -> Any:
        if self.anthropic:
            made = f"{datetime.fromtimestamp(model.created_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
            return {"type": "model", "id": name, "display_name": name, "created_at": made}
        price = model.price_for(self.key.project, self.key.priority)
        pricing: dict[str, str | int] = {
            "version": price.version,
            "input": usd_from_micro(price.input_pico),
            "cached_input": usd_from_micro(price.cached_pico),
            "output": usd_from_micro(price.output_pico),
        }
        window, output = model.context_window, model.output_tokens_max
        able, made_s = _abilities(self.served.get(model.name), model), model.created_s
        return ModelFacts(name, "model", made_s, model.owner, window, output, able, pricing)


def _abilities(served: ServedModel | None, model: ModelRecord) -> list[str]:
    """None while no node serves it; of a server behind a node only what is known."""
    if served is None:
        return []
    if served.dimensions:
        return ["score"] if served.scores else ["embeddings", "score"]
    text = None if served.takes_text else served.text
    able = {
        "vision": bool(model.images_max) and served.can(Capability.VISION),
        "tools": text is None or text.shows_tools,
        "reasoning": text is not None and text.marks is not None,
        "structured_output": served.can(Capability.GRAMMAR),
    }
    return [name for name, can in able.items() if can]


def _named(snapshot: Snapshot, key: KeyRecord, name: str) -> ModelRecord | None:
    """The model of a name; for an alias the first in service that a rule has for this key, of its
    largest size class: what fits that one is served.
    """
    if key.models is not None and name not in key.models:
        return None
    if name in snapshot.models or name not in snapshot.aliases:
        return snapshot.models.get(name)
    rules = [rule for rule in snapshot.rules if _leads(rule, key, name)]
    steps = (step for rule in rules for step in rule.steps)
    targets = (target for step in steps for target in class_targets(step.targets, LARGEST))
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
