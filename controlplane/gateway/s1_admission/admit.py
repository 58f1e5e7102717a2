"""The order of stage 1's layers."""

from functools import partial
from typing import Protocol

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.http.exchange import Incoming
from controlplane.gateway.policies.check import INLINE_BYTES_MAX, read_masked
from controlplane.gateway.ports import Keys, Ledger, Limiter, Standings
from controlplane.gateway.refusal import BAD_REQUEST, Refusal
from controlplane.gateway.results import Admitted, Asked
from controlplane.gateway.s1_admission import limits
from controlplane.gateway.s1_admission.body import LimitsCheck, read_body
from controlplane.gateway.s1_admission.claim import make_ticket
from controlplane.gateway.s1_admission.helpers.offload import LARGE_BYTES, Offload, is_large
from controlplane.gateway.s1_admission.hold import (
    CountPrompt,
    HoldTaking,
    exact_nano,
    make_hold,
    take_hold,
)
from controlplane.gateway.s1_admission.schema import (
    Parse,
    PlanPorts,
    plan_known,
    read_schema,
    read_schema_beside,
)
from controlplane.gateway.snapshot import KeyRecord
from controlplane.kernel.bytes_budget import BytesBudget, Portion

KEPT_OPERATIONS = frozenset({"chat", "completion"})


class ReadPorts(PlanPorts, Protocol):
    """What reading a request needs of everything outside it."""

    keys: Keys
    limiter: Limiter
    offload: Offload
    bodies: BytesBudget
    body_s: float


class AdmitPorts(Protocol):
    """What counting a request and holding its cost need."""

    limiter: Limiter
    ledger: Ledger
    standings: Standings
    hold_grace_s: int


async def read_ask(
    call: Call, exchange: Incoming, parse: Parse, state: ReadPorts, *, key: KeyRecord
) -> Asked:
    """Body and schema; whoever gets a portion frees it; raises `Refusal`."""
    snapshot = state.keys.snapshot()
    project, inline_bytes = snapshot.projects[key.project], LARGE_BYTES
    if project.policies is not None and project.policies.reads:
        policies, inline_bytes = project.policies, INLINE_BYTES_MAX
        parse = partial(read_masked, parse=parse, policies=policies, key=project.salt)
    portion = state.bodies.portion(key.organization)
    kept: Portion | None = None
    try:
        check = LimitsCheck(partial(limits.check_requests, key, state.limiter))
        body = await read_body(call, exchange, portion, check, seconds_max=state.body_s)
        if len(body) > inline_bytes or is_large(body):
            await check()
            ask = await _read_large(call, body, parse, state, key)
        else:
            ask = read_schema(call, body, parse)
        ask, plan = await plan_known(call, ask, key=key, snapshot=snapshot, state=state)
        ticket = make_ticket(call, body, key, route=exchange.path)
        keeps = ask.operation in KEPT_OPERATIONS and project.keeps_days
        kept = portion if ask.pictures or keeps else None
        counted = limits.counted_key(key, ask, plan, snapshot)
        told = body if ask.masks is None else ask.masks.body
        said = (exchange.path, told) if keeps else ("", b"")
        return Asked(counted, snapshot, ask, plan, ticket, kept, *said)
    finally:
        if kept is None:
            portion.free()


async def _read_large(
    call: Call, body: bytes, parse: Parse, state: ReadPorts, key: KeyRecord
) -> Ask:
    """A large body that was read in vain counts as a request; one that nobody read does not."""
    try:
        return await read_schema_beside(call, body, parse, state.offload, tenant=key.organization)
    except Refusal as refusal:
        if refusal.status == BAD_REQUEST:
            await limits.count_request(key, state.limiter)
        raise


async def admit(
    call: Call, asked: Asked, state: AdmitPorts, *, count_prompt: CountPrompt
) -> Admitted:
    """Limits and the hold; raises `Refusal` with nothing left reserved.

    Far from its limits a request is most likely allowed: its hold is asked for meanwhile, and given
    back if it is not. Near them the hold comes after, so that refusals cost the ledger nothing.
    """
    ask, plan = asked.ask, asked.plan
    limiter, ledger = state.limiter, state.ledger
    output_all = max([step.output_tokens for step in plan.steps]) * ask.choices
    shown = len(ask.pictures)
    seen = max([step.model.seen_tokens(shown) for step in plan.steps]) if shown else 0
    estimated = limits.estimate_tokens(ask.bytes, output_all + seen)
    hold = make_hold(call, asked.key, ask, plan, project=asked.project, grace_s=state.hold_grace_s)
    taking = HoldTaking(call, hold, ledger)
    if limiter.roomy(asked.key, estimated):
        taking.begin()
    try:
        allowance = await limits.take_limits(call, asked.key, limiter, tokens=estimated)
    except BaseException:
        taking.withdraw()
        raise
    try:
        exact = partial(exact_nano, ask, plan, count_prompt)
        hold = await take_hold(taking, state.standings, exact_nano=exact)
    except BaseException:
        limiter.correct(asked.key, -estimated)
        limiter.release(allowance)
        raise
    return Admitted(asked=asked, estimated_tokens=estimated, allowance=allowance, hold=hold)
