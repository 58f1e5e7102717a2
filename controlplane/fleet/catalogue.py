"""The catalogue: each model with its price and what serves it now."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.catalog.models import Model, PriceVersion, Task
from controlplane.catalog.selectors import model_list, prices_in_force
from controlplane.fleet.overview import NodeView, nodes_of_models
from inference.contract.capabilities import Capability

# As `GET /v1/models` calls what a node says that it can do.
ABILITIES = {
    Capability.VISION: "vision",
    Capability.GRAMMAR: "structured_output",
    Capability.PREFIX_CACHE: "prefix_cache",
    Capability.SPECULATION: "speculation",
}


@dataclass(frozen=True)
class Offer:
    """A model as people choose one; `nodes` are those that may serve it now."""

    model: Model
    price: PriceVersion | None
    nodes: list[NodeView]

    @property
    def state(self) -> str:
        """`ready`, or what is missing: `no_node`, `no_price`; `off` where it is switched off."""
        if not self.model.enabled:
            return "off"
        if self.price is None:
            return "no_price"
        return "ready" if self.nodes else "no_node"

    @property
    def chats(self) -> bool:
        """Whether it can be tried in the playground."""
        return self.state == "ready" and self.model.task == Task.GENERATE

    @property
    def output_max(self) -> int | None:
        return self.model.output_tokens_max or None

    @property
    def words(self) -> str:
        return ", ".join(name.replace("_", " ") for name in self.abilities)

    @property
    def abilities(self) -> list[str]:
        """What every node of it can do; empty while there is none."""
        if self.model.task == Task.EMBED:
            return ["embeddings"]
        told = [set(_capabilities(view)) for view in self.nodes]
        common = set.intersection(*told) if told else set()
        if not self.model.images_max:
            common.discard(Capability.VISION)
        return [name for capability, name in ABILITIES.items() if capability in common]


def offer_list(*, now: datetime, enabled_only: bool) -> list[Offer]:
    """By name; a constant number of queries."""
    models = model_list(enabled_only=enabled_only)
    prices = prices_in_force(at=now)
    nodes: dict[str, list[NodeView]] = defaultdict(list)
    for view in nodes_of_models(now, {model.name for model in models}):
        for name in view.serves if view.ready else ():
            nodes[name].append(view)
    return [Offer(model, prices.get(model.id), nodes[model.name]) for model in models]


def _capabilities(view: NodeView) -> list[Any]:
    return view.node.facts.get("capabilities") or []
