"""The order of stage 1's layers, and its result."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.plan import Plan
from controlplane.gateway.ports import Allowance, Hold, Ledger, Limiter, Ticket
from controlplane.gateway.s1_admission.body import Receive, read_body
from controlplane.gateway.s1_admission.claim import make_ticket
from controlplane.gateway.s1_admission.hold import CountPrompt, exact_nano, make_hold, take_hold
from controlplane.gateway.s1_admission.limits import estimate_tokens, take_limits
from controlplane.gateway.s1_admission.schema import Parse, check_schema
from controlplane.gateway.snapshot import KeyRecord, Snapshot


class Asked(msgspec.Struct, frozen=True):
    """A checked request of a known caller, not yet counted or paid for.

    `ticket` is there where it came with an `Idempotency-Key`.
    """

    key: KeyRecord
    snapshot: Snapshot
    ask: Ask
    plan: Plan
    ticket: Ticket | None = None


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """A request that may run: counted against its limits, its cost reserved.

    `estimated_tokens` is what the token limit was charged.
    """

    key: KeyRecord
    snapshot: Snapshot
    ask: Ask
    plan: Plan
    estimated_tokens: int
    allowance: Allowance
    hold: Hold


async def read_ask(
    call: Call, receive: Receive, parse: Parse, *, key: KeyRecord, snapshot: Snapshot
) -> Asked:
    """Body and schema; raises `Refusal`."""
    body = await read_body(call, receive)
    ask, plan = check_schema(call, body, parse, key=key, snapshot=snapshot)
    ticket = make_ticket(call, body, key, route=ask.operation)
    return Asked(key, snapshot, ask, plan, ticket)


async def admit(
    call: Call,
    asked: Asked,
    limiter: Limiter,
    ledger: Ledger,
    *,
    count_prompt: CountPrompt,
) -> Admitted:
    """Limits and the hold; raises `Refusal` with nothing left reserved.

    Far from its limits a request is most likely allowed: its hold is asked for meanwhile, and given
    back if it is not. Near them the hold comes after, so that refusals cost the ledger nothing.
    """
    ask, plan = asked.ask, asked.plan
    output_all = max([step.output_tokens for step in plan.steps]) * ask.sampling.n
    estimated = estimate_tokens(ask.bytes, output_all)
    hold = make_hold(call, asked.key, ask, plan)
    exact = partial(exact_nano, ask, plan, count_prompt)
    take = partial(take_hold, call, hold, ledger, exact_nano=exact)
    early = asyncio.ensure_future(take()) if limiter.roomy(asked.key, estimated) else None
    try:
        allowance = await take_limits(call, asked.key, limiter, tokens=estimated)
        try:
            hold = await (early or take())
        except BaseException:
            limiter.give_back(asked.key, estimated)
            limiter.release(allowance)
            raise
    except BaseException:
        if early is not None:
            _withdraw(early, ledger)
        raise
    return Admitted(
        key=asked.key,
        snapshot=asked.snapshot,
        ask=ask,
        plan=plan,
        estimated_tokens=estimated,
        allowance=allowance,
        hold=hold,
    )


def _withdraw(holding: asyncio.Task[Hold], ledger: Ledger) -> None:
    """Give a hold back that was taken; one on its way is given back by the ledger when it comes."""
    if not holding.done():
        holding.cancel()
    elif not holding.cancelled() and holding.exception() is None:
        ledger.release(holding.result())
