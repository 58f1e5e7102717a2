"""What the plan's step asks for of stage 4: which queue the request waits in."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.plan import PlannedStep
from controlplane.kernel.spans import INDEX

RULES = INDEX["s4_route.rules"]


def queue_key(
    call: Call, step: PlannedStep, ask: Ask, *, region: str, tried: Iterable[str]
) -> tuple[str, ...]:
    """All that tells the nodes that may serve the step from others; its first item is the model."""
    began = call.spans.clock()
    follows = "grammar" if ask.grammar_field else ""
    key = (step.model.name, step.pool, region, follows, *sorted(tried))
    call.spans.add(RULES, began)
    return key
