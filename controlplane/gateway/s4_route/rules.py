"""What the plan's step asks for of stage 4: where the request waits, and with what claim."""

from collections.abc import Iterable

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.plan import PlannedStep, RoutePlan
from controlplane.gateway.s4_route.queue.request import QueuedRequest, QueueLane
from controlplane.gateway.snapshot import ProjectRecord
from controlplane.kernel.spans import INDEX

RULES = INDEX["s4_route.rules"]
# A generated token costs a node about what two prompt tokens do (Sheng et al., OSDI 2024).
OUTPUT_WEIGHT = 2
MS_PER_S = 1000


def queue_lane(
    step: PlannedStep, ask: Ask, *, region: str, assets: str, sizes: Iterable[int], tried: set[str]
) -> QueueLane:
    """All that tells the nodes that may serve the step from others.

    `assets` is the digest that the prompt was encoded by, `sizes` are the block sizes it was hashed
    for.
    """
    needs = (",".join(sorted(ask.required)), assets, *map(str, sorted(sizes)))
    return QueueLane(step.model.name, step.pool, region, (*needs, *sorted(tried)))


def queue_claim(
    call: Call,
    step: PlannedStep,
    plan: RoutePlan,
    *,
    project: ProjectRecord,
    tokens: int,
    choices: int,
) -> QueuedRequest:
    """What the request may displace, and how long it can wait; `tokens` is its prompt."""
    began = call.spans.clock()
    claim = QueuedRequest(
        tenant=project.organization,
        weight=project.weight,
        priority=plan.priority,
        degrade_order=None if plan.rule is None else plan.rule.degrade_order,
        work_tokens=tokens + OUTPUT_WEIGHT * step.output_tokens * choices,
        queue_s=step.queue_s,
        deadline_s=call.left_ms() / MS_PER_S,
    )
    call.spans.add(RULES, began)
    return claim
