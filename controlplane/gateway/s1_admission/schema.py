"""Parse the body in the client's shape, and plan where the request goes; and stored templates:
which version a request gets, and whether its variables fit.

No template is put together here: stage 3 does that. What it will add counts in the request's size,
so that limits and the hold know of it.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import msgspec

from controlplane.gateway.ask import Ask, Assembly, PromptUse, StoredParts
from controlplane.gateway.call import Call
from controlplane.gateway.plan import RoutePlan, make_plan, within
from controlplane.gateway.policies.check import check_ask
from controlplane.gateway.refusal import NO_RETRY, Refusal, bad_field
from controlplane.gateway.s1_admission.helpers.offload import Offload
from controlplane.gateway.sizing import SIZE_CLASS, SizeMemory, with_size_class
from controlplane.gateway.snapshot import KeyRecord, PromptRecord, Snapshot
from controlplane.kernel.prompts import BadValue, PromptBody, checked_values, filled_bytes
from controlplane.kernel.rules import PERMILLE
from controlplane.kernel.spans import INDEX

SCHEMA = INDEX["s1_admission.schema"]

TOOLS = "stored_tools"
# What a response follows, in the `echo` of one whose own text is not read before that is found.
PREVIOUS = "previous"
Parse = Callable[[bytes], Ask]


class PlanPorts(Protocol):
    """What a plan needs to know of its gateway."""

    sizes: SizeMemory

    @property
    def pools(self) -> frozenset[str]:
        """Those of this gateway, empty for all."""


class StoredHere(NamedTuple):
    """Whose request it is, and what is stored for it."""

    request: bytes
    key: KeyRecord
    snapshot: Snapshot

    def find(self, name: str, version: int | None, field: str) -> tuple[int, PromptBody]:
        """The version in force, or the one that is named in `field`; raises `Refusal`."""
        record = self.snapshot.prompts.get(f"{self.key.organization}/{name}")
        tool = field.startswith(TOOLS)
        if record is None or record.project not in (None, self.key.project) or record.tool != tool:
            what = "stored tool" if tool else "prompt template"
            told = f"The {what} '{name}' does not exist, or this key does not have access to it."
            raise _unknown(f"{field}.id", told)
        found = _version(self.request, version, record, f"{field}.version")
        return found, record.versions[found]


def find_stored(here: StoredHere, ask: Ask) -> Ask:
    """The whole request, with its template and tools found and its size told; raises `Refusal` by
    field.
    """
    if ask.again is None:
        return ask
    assembly = _assembly(here, ask.prompt) if ask.prompt else None
    wanted = ask.stored_tools or (assembly.body.tools if assembly else ())
    tools: list[dict[str, Any]] = []
    labels: list[str] = []
    for place, one in enumerate(wanted):
        if ask.stored_allowed is not None and one.id not in ask.stored_allowed:
            continue
        version, body = here.find(one.id, one.version, f"{TOOLS}[{place}]")
        tools.append({"name": one.id, **msgspec.to_builtins(body.tool)})
        labels.append(f"{one.id}:{version}")
    settings = assembly.body.settings if assembly else {}
    whole = ask.again(StoredParts(settings, tuple(tools)))
    size = whole.bytes + sum(len(msgspec.json.encode(tool)) for tool in tools)
    if assembly is not None:
        size += filled_bytes(assembly.body, assembly.values)
    return msgspec.structs.replace(whole, assembly=assembly, bytes=size, tool_labels=tuple(labels))


def _assembly(here: StoredHere, use: PromptUse) -> Assembly:
    version, body = here.find(use.name, use.version, "prompt")
    try:
        values = checked_values(body, use.values)
    except BadValue as error:
        field = ".".join(filter(None, ("prompt.variables", error.name)))
        raise bad_field(field, str(error), error.code) from error
    return Assembly(use.name, version, body, values)


def _version(request: bytes, wanted: int | None, record: PromptRecord, field: str) -> int:
    """The one that was asked for; else the canary for its share of requests."""
    if wanted is not None:
        if wanted not in record.versions:
            kept = ", ".join(map(str, sorted(record.versions)))
            told = (
                f"Version {wanted} of '{record.name}' cannot be used. Available versions: {kept}."
            )
            raise _unknown(field, told)
        return wanted
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


async def plan_known(
    call: Call, ask: Ask, *, key: KeyRecord, snapshot: Snapshot, state: PlanPorts
) -> tuple[Ask, RoutePlan]:
    """The same as `plan_schema` with what other gateways remember of a prompt of some size."""
    found, plan = plan_schema(call, ask, key=key, snapshot=snapshot, state=state)
    follows = PREVIOUS in ask.echo
    if plan.sized is not None and not follows and await state.sizes.learn(plan.sized):
        return plan_schema(call, ask, key=key, snapshot=snapshot, state=state)
    return found, plan


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
        ask = find_stored(StoredHere(call.request, key, snapshot), ask)
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
