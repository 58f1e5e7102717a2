"""Parse the body in the client's shape, and plan where the request goes; and stored templates:
which version a request gets, and whether its variables fit.

No template is put together here: stage 3 does that. What it will add counts in the request's size,
so that limits and the hold know of it.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Protocol

import msgspec

from controlplane.gateway.ask import Ask, Assembly, PromptUse
from controlplane.gateway.call import Call
from controlplane.gateway.plan import RoutePlan, make_plan, within
from controlplane.gateway.policies.check import check_ask
from controlplane.gateway.refusal import NO_RETRY, Refusal, bad_field
from controlplane.gateway.s1_admission.helpers.offload import Offload
from controlplane.gateway.sizing import SIZE_CLASS, SizeMemory, with_size_class
from controlplane.gateway.snapshot import KeyRecord, PromptRecord, Snapshot
from controlplane.kernel.prompts import BadValue, checked_values, filled_bytes
from controlplane.kernel.rules import PERMILLE
from controlplane.kernel.spans import INDEX

SCHEMA = INDEX["s1_admission.schema"]

Parse = Callable[[bytes], Ask]


class PlanPorts(Protocol):
    """What a plan needs to know of its gateway."""

    sizes: SizeMemory

    @property
    def pools(self) -> frozenset[str]:
        """Those of this gateway, empty for all."""


def find_prompt(request: bytes, ask: Ask, key: KeyRecord, snapshot: Snapshot) -> Ask:
    """The request with its template found and its size told; raises `Refusal` by field."""
    use = ask.prompt
    if use is None:
        return ask
    record = snapshot.prompts.get(f"{key.organization}/{use.name}")
    if record is None or record.project not in (None, key.project):
        raise _unknown(
            "prompt.id",
            f"The prompt template '{use.name}' does not exist, or this "
            "key does not have access to it.",
        )
    version = _version(request, use, record)
    body = record.versions[version]
    try:
        values = checked_values(body, use.values)
    except BadValue as error:
        field = ".".join(filter(None, ("prompt.variables", error.name)))
        raise bad_field(field, str(error), error.code) from error
    assembly = Assembly(record.name, version, body, values)
    size = ask.bytes + filled_bytes(body, values)
    return msgspec.structs.replace(ask, assembly=assembly, bytes=size)


def _version(request: bytes, use: PromptUse, record: PromptRecord) -> int:
    """The one that was asked for; else the canary for its share of requests."""
    if use.version is not None:
        if use.version not in record.versions:
            kept = ", ".join(map(str, sorted(record.versions)))
            told = (
                f"Version {use.version} of '{record.name}' cannot be used. Available versions: "
                f"{kept}."
            )
            raise _unknown("prompt.version", told)
        return use.version
    if record.canary is not None and _draw(request) < record.share_permille:
        return record.canary
    return record.published


def _draw(request: bytes) -> int:
    """Independent of the draw by which rules are chosen, so that two trials do not mix."""
    return int.from_bytes(sha256(b"prompt" + request).digest()[:8], "big") % PERMILLE


def _unknown(field: str, message: str) -> Refusal:
    return Refusal(404, "prompt_not_found", message, param=field, headers=NO_RETRY)


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
    call: Call, ask: Ask, *, key: KeyRecord, snapshot: Snapshot, state: PlanPorts
) -> tuple[Ask, RoutePlan]:
    """Return the request with its stored prompt, and its plan; raises `Refusal`.

    A rule may shorten the deadline; strict projects have unknown fields refused, and those with
    policies what breaks them. A size class that no rule asks for is ignored.
    """
    began = call.spans.clock()
    try:
        project = snapshot.projects[key.project]
        if ask.unknown and project.strict:
            message = f"Unknown parameter: '{ask.unknown}'."
            raise bad_field(ask.unknown, message, "unknown_parameter")
        ask = find_prompt(call.request, ask, key, snapshot)
        ask = with_size_class(call, ask)
        plan = make_plan(call.request, ask, key, snapshot, state.sizes)
        if ask.size_class is not None and plan.sized is None:
            ask = msgspec.structs.replace(ask, ignored=(*ask.ignored, SIZE_CLASS))
        plan = within(plan, state.pools)
        if plan.rule is not None and plan.rule.deadline_s is not None:
            call.deadline_s = min(call.deadline_s, plan.rule.deadline_s)
        if project.policies is not None:
            waits = not (key.batch or ask.echo.get("background"))
            ask = check_ask(ask, plan, project.policies, waits=waits)
        return ask, plan
    finally:
        call.spans.add(SCHEMA, began)
