"""Models, pools and published rules for tests of routing."""

from __future__ import annotations

from typing import Any

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.services import (
    ModelDraft,
    PriceDraft,
    model_create,
    price_publish,
)
from controlplane.core.audit.entries import OPERATOR, Actor
from controlplane.fleet.models import Node, NodeState
from controlplane.routing.models import RuleSet
from controlplane.routing.services import RuleVersions
from tests.support.money import rows

EMBED = "embedder"
EMBED_POOL = "vectors"


def make_models(*names: str, pool: str = "default") -> None:
    """Generators of these names with a price each, the next ten times as dear; and an embedder."""
    for name, task in ((pool, "generate"), (EMBED_POOL, "embed")):
        pool_set(actor=OPERATOR, draft=PoolDraft(name=name, task=task))
    for place, name in enumerate(names):
        draft = ModelDraft(
            name=name,
            pool=pool,
            context_window=4_096,
            output_tokens_default=64,
            output_tokens_max=1_024,
        )
        price = 100_000 * 10**place
        model = model_create(actor=OPERATOR, draft=draft)
        prices = PriceDraft(input_pico=price, cached_pico=price // 10, output_pico=4 * price)
        price_publish(actor=OPERATOR, model=model, draft=prices)
    draft = ModelDraft(name=EMBED, pool=EMBED_POOL, context_window=512, task="embed")
    model_create(actor=OPERATOR, draft=draft)


def rule(name: str, model: str, /, **more: Any) -> dict[str, Any]:
    """A rule as JSON with one step to one model; `match` and the rest by name."""
    return {"name": name, "steps": [{"targets": [{"model": model}]}], **more}


def generates(name: str, model: str, **match: Any) -> dict[str, Any]:
    """A rule for requests that generate."""
    return rule(name, model, match={"tasks": ["generate"], **match})


def publish(*rules: dict[str, Any], actor: Actor = OPERATOR, note: str = "") -> RuleSet:
    """A draft that is published at once."""
    draft = RuleVersions(actor).draft_create(list(rules), note=note)
    return RuleVersions(actor).publish(draft)


def serve(*models: str, pool: str = "default") -> None:
    """A node of this pool that may serve these models now, as a gateway would tell of it."""
    facts = {"models": models}
    node = Node.objects.create(
        name=f"{pool}-node", pool=pool, state=NodeState.CONNECTED, facts=facts
    )
    link = """INSERT INTO node_links (node_id, gateway, facts, seen_at)
              VALUES (%s, 'gateway-1', '{"takes_jobs": true}', now())"""
    rows(link, node.id)
