"""Parse the body in the client's shape, and plan where the request goes."""

from collections.abc import Callable

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.plan import RoutePlan, make_plan
from controlplane.gateway.s1_admission.helpers.offload import Offload
from controlplane.gateway.s1_admission.helpers.prompts import find_prompt
from controlplane.gateway.snapshot import KeyRecord, Snapshot
from controlplane.kernel.spans import INDEX

SCHEMA = INDEX["s1_admission.schema"]

Parse = Callable[[bytes], Ask]


def read_schema(call: Call, body: bytes, parse: Parse) -> Ask:
    """Return the request; raises `Refusal`."""
    began = call.spans.clock()
    try:
        return parse(body)
    finally:
        call.spans.add(SCHEMA, began)


async def read_schema_beside(
    call: Call, body: bytes, parse: Parse, offload: Offload, *, tenant: str
) -> Ask:
    """The same for a large body, beside the loop."""
    began = call.spans.clock()
    try:
        return await offload.run(parse, body, tenant=tenant)
    finally:
        call.spans.add(SCHEMA, began)


def plan_schema(
    call: Call, ask: Ask, *, key: KeyRecord, snapshot: Snapshot
) -> tuple[Ask, RoutePlan]:
    """Return the request with its stored prompt, and its plan; raises `Refusal`.

    A rule may shorten the deadline.
    """
    began = call.spans.clock()
    try:
        ask = find_prompt(call.request, ask, key, snapshot)
        plan = make_plan(call.request, ask, key, snapshot)
        if plan.rule is not None and plan.rule.deadline_s is not None:
            call.deadline_s = min(call.deadline_s, plan.rule.deadline_s)
        return ask, plan
    finally:
        call.spans.add(SCHEMA, began)
