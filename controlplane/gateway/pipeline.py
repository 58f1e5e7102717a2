"""The seven stages, in order, for one request. This file is the table of contents of the product.

What generating text and embedding it do differently is the task's (`generation.py`,
`embedding.py`); the order is one. Before the first token a lost or full node is replaced, at most
`ATTEMPTS_MAX` times and while the retry budget lasts, and then the plan's next step is tried; after
it a stream ends with a typed error and without its end mark, unless its route lets another node go
on.
However a request ends, its hold is resolved exactly once, in `_resolve`, which outlives the
request's own task if it must.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from controlplane.gateway.call import Call, ClientGone
from controlplane.gateway.confirmation import confirmed, stop
from controlplane.gateway.degraded import overloaded, reason_of, with_steps
from controlplane.gateway.keeping import KeepingOut, end_claim, keep_answer
from controlplane.gateway.nodes.retries import pause_s
from controlplane.gateway.nodes.stream import JobRejected, NodeLost, SlowReader
from controlplane.gateway.openai.shapes import Shape
from controlplane.gateway.ports import LedgerAway
from controlplane.gateway.record import find_miss, make_record
from controlplane.gateway.refusal import (
    UNAVAILABLE,
    Refusal,
    grammar_failed,
    internal_error,
    node_lost,
    node_rejected,
    timed_out,
)
from controlplane.gateway.room import find_room
from controlplane.gateway.routing.sought import Sought
from controlplane.gateway.s1_admission.admit import admit, read_ask
from controlplane.gateway.s1_admission.arrival import note_arrival
from controlplane.gateway.s1_admission.authenticate import authenticate, check_scopes
from controlplane.gateway.s1_admission.body import Receive, watch_client
from controlplane.gateway.s1_admission.claim import Replay, hold_claim, take_claim
from controlplane.gateway.s2_balance.balance import balance
from controlplane.gateway.s4_route.node import Placement, pick_node
from controlplane.gateway.s5_infer.dispatch import NodeChanged
from controlplane.gateway.s5_infer.remote_spans import note_remote_spans
from controlplane.gateway.s7_bill.price import price_usage
from controlplane.gateway.s7_bill.settle import charge_delayed, settle_charge
from controlplane.gateway.tracing import trace_of
from controlplane.gateway.trip import Attempt, Out, Trip, made
from controlplane.gateway.waiting.claim import NoRoom
from controlplane.gateway.waste import note_waste
from controlplane.gateway.world import World
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.spans import INDEX
from inference.contract.frames import BYTES_PER_TOKEN, Output

ATTEMPTS_MAX = 3
S1, S2, S3, S4, S5, S6, S7 = (
    INDEX[name]
    for name in (
        "s1_admission", "s2_balance", "s3_tokenize", "s4_route", "s5_infer", "s6_finish", "s7_bill",
    )
)  # fmt: skip
FAILED_FINISHES = frozenset({"error", "cancelled"})
RETRY_CODES = frozenset({"full", "draining", "unknown_model"})
INTERNAL = 500
SLOW_START = "no first token within the time of its route"
MS_PER_S = 1000

log = logging.getLogger(__name__)


async def serve(call: Call, receive: Receive, shape: Shape, world: World, out: Out) -> None:
    """Answer one request on `out`; every failure becomes an answer too."""
    call.trace = trace_of(call, world.trace_ratio)
    trip = Trip(call, world, out, shape.task)
    try:
        await _stages(trip, receive, shape)
    except Replay as replay:
        await out.replay(replay.kept, trip)
        trip.ended = True
    except Refusal as refusal:
        trip.refusal = refusal
        trip.failed_whole = not out.started
        if trip.admitted is None and trip.ticket is not None:
            await end_claim(trip, trip.ticket)
        await out.refuse(refusal, trip)
        await _resolve(trip)
    except ClientGone:
        await _resolve(trip)
    except Exception:
        # A bug: the edge answers 500 and logs it, the record must say so too.
        trip.refusal = internal_error("internal_error", "Something failed here.")
        trip.failed_whole = not out.started
        raise
    finally:
        _leave(trip)


async def _stages(trip: Trip, receive: Receive, shape: Shape) -> None:
    await _admit(trip, receive, shape)
    trip.watcher = trip.world.spawn(watch_client(trip.call, receive))
    await _walk(trip)
    if trip.call.gone:
        raise ClientGone
    await trip.task.screened()
    _price(trip)
    last = _last_bytes(trip)
    await _settle(trip)
    await keep_answer(trip, last)
    await trip.out.end(last, trip)
    trip.ended = True


async def _admit(trip: Trip, receive: Receive, shape: Shape) -> None:
    """Stage 1: who asks, for what, within which limits, and is there money for it."""
    call, world = trip.call, trip.world
    try:
        note_arrival(call, world.trusted_proxies)
        trip.key = authenticate(call, world.keys)
        check_scopes(call, trip.key, shape.endpoint, world.places)
        trip.asked = await read_ask(call, receive, shape.parse, world, key=trip.key)
        trip.begin_step(trip.asked.plan.steps[0])
        await _claim(trip)
        trip.admitted = await admit(call, trip.asked, world, count_prompt=trip.task.count)
        if trip.ticket is not None:
            await hold_claim(call, trip.ticket, world.claims)
        world.retries.deposit()
    finally:
        call.spans.add(S1, call.arrived_ns)


async def _claim(trip: Trip) -> None:
    """With an `Idempotency-Key`: go on as the first of its requests, and keep what is answered."""
    ticket = made(trip.asked).ticket
    if ticket is None:
        return
    await take_claim(trip.call, ticket, trip.world.claims)
    trip.ticket = ticket
    trip.out = KeepingOut(trip.out)


async def _walk(trip: Trip) -> None:
    """Stages 2 to 6, step by step of the plan, until one serves; the last lack is the answer.

    What the model of a later step cannot do is no fault of the request: that step is passed, too.
    """
    lack: Refusal | None = None
    for step in made(trip.admitted).plan.steps:
        trip.begin_step(step)
        try:
            _balance(trip)
            await _tokenize(trip)
            await _infer(trip)
            return
        except Refusal as refusal:
            misfit = lack is not None and refusal.status < INTERNAL
            if trip.out.started:
                # Its node was lost, and nobody could go on: what came before is charged.
                if refusal.status == UNAVAILABLE:
                    raise node_lost() from refusal
                raise
            if not (misfit or refusal.status == UNAVAILABLE):
                raise
            lack = lack if misfit else refusal
            trip.pass_step(reason_of(refusal))
    raise with_steps(made(lack), trip.passed)


def _balance(trip: Trip) -> None:
    """Stage 2: which cluster."""
    call, world = trip.call, trip.world
    began = call.spans.clock()
    try:
        trip.cluster = balance(
            call,
            made(trip.step),
            world.fleet,
            client_region=world.places.region_of(call),
            own_region=world.region,
            grammar_field=made(trip.admitted).ask.grammar_field,
        )
    except Refusal as refusal:
        if refusal.status == UNAVAILABLE:
            world.unmet.note(made(trip.step).pool, monotonic_s())
        raise
    finally:
        call.spans.add(S2, began)


async def _tokenize(trip: Trip) -> None:
    """Stage 3: token ids, window, block hashes."""
    began = trip.call.spans.clock()
    try:
        trip.prompt = await trip.task.tokenize()
    finally:
        trip.call.spans.add(S3, began)


async def _infer(trip: Trip) -> None:
    """Stages 4 to 6, again on another node while nothing has reached the client."""
    tried: set[str] = set()
    for _ in range(ATTEMPTS_MAX):
        await _pause(trip, len(tried))
        placement = await _route(trip, tried)
        if not trip.out.started:
            trip.task.begin()
        try:
            await _work(trip, placement)
            return
        except NodeChanged:
            continue
        except JobRejected as error:
            if error.code not in RETRY_CODES:
                field = made(trip.admitted).ask.grammar_field
                raise node_rejected(error.code, str(error), grammar_field=field) from error
            trip.attempts.append(Attempt(placement.link.identity.name, error.code))
        except NodeLost as error:
            name = placement.link.identity.name
            log.warning("node lost name=%s reason=%s", name, error)
            trip.attempts.append(Attempt(name, str(error)))
            if not trip.call.left_ms():
                raise timed_out(trip.call.deadline_s) from error
            if trip.call.gone or trip.out.started and not trip.task.resume():
                raise node_lost() from error
        except SlowReader as error:
            message = "The client read too slowly, so generation was stopped."
            raise internal_error("slow_reader", message) from error
        tried.add(placement.link.identity.id)
        if not trip.out.started:
            # What it has computed went to nobody: nobody pays for it.
            trip.stream = None
    raise overloaded(NoRoom("failed"))


async def _pause(trip: Trip, failures: int) -> None:
    """Before another attempt: is one left in the budget, and not all of them at once."""
    if not failures:
        return
    if not trip.world.retries.withdraw():
        raise overloaded(NoRoom("failed"))
    await asyncio.sleep(pause_s(failures))


async def _route(trip: Trip, tried: set[str]) -> Placement:
    """Stage 4: which rule, which node, and is there room."""
    call, admitted, prompt = trip.call, made(trip.admitted), made(trip.prompt)
    began = call.spans.clock()
    try:
        roomy = await find_room(trip, tried)
        sought = Sought(
            model=made(trip.step).model.name,
            rule=admitted.plan.label,
            tokens=len(prompt.tokens) or len(prompt.text) // BYTES_PER_TOKEN,
            chains=prompt.chains,
            text=prompt.text,
        )
        world = trip.world
        trip.placement = pick_node(call, sought, world.fleet, world.routing, nodes=roomy)
        return trip.placement
    finally:
        call.spans.add(S4, began)


async def _work(trip: Trip, placement: Placement) -> None:
    """Stages 5 and 6 on one node, batch by batch."""
    call, spans = trip.call, trip.call.spans
    began = spans.clock()
    dispatched_us = call.elapsed_us()
    stream = trip.stream = trip.task.dispatch(placement)
    trip.dispatched_to = placement.link
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    end = partial(stop, stream, timers, placement.link.limits.cancel_confirm_s)
    call.on_gone = end
    if call.gone:
        end()
    timers.append(loop.call_later(call.left_ms() / MS_PER_S, end))
    rule = made(trip.admitted).plan.rule
    if rule is not None and rule.first_token_s is not None:
        give_up = placement.link.give_up
        timers.append(loop.call_later(rule.first_token_s, give_up, call.request, SLOW_START))
    try:
        while outputs := await stream.batch():
            began = spans.add(S5, began)
            if not stream.cancelled:
                _check_finishes(trip, outputs)
            await trip.task.take(outputs)
            began = spans.add(S6, began)
            if trip.task.ended:
                return
        spans.add(S5, began)
        if stream.cancelled and not call.gone:
            raise timed_out(call.deadline_s)
    finally:
        for timer in timers:
            timer.cancel()
        call.on_gone = None
        # A no-op where the job has ended; else nobody wants the rest.
        stream.cancel()
        note_remote_spans(call, stream, dispatched_us=dispatched_us)


def _check_finishes(trip: Trip, outputs: list[Output]) -> None:
    """A choice that the node gave up ends the attempt."""
    failed = {output.finish for output in outputs} & FAILED_FINISHES
    field = made(trip.admitted).ask.grammar_field
    # Where a server got the request itself, its stream may have broken for any other reason.
    if field and "error" in failed and made(trip.cluster).served.text is not None:
        raise grammar_failed(field)
    if failed:
        raise NodeLost("the node gave it up")


def _price(trip: Trip) -> None:
    """Stage 7, first half: what it costs."""
    began = trip.call.spans.clock()
    trip.charge = price_usage(trip.call, made(trip.step).model.price, trip.usage())
    trip.call.spans.add(S7, began)


def _last_bytes(trip: Trip) -> bytes:
    """The end of a stream or the whole body, made before the charge: failing here costs nothing."""
    began = trip.call.spans.clock()
    data = trip.task.last_bytes()
    trip.call.spans.add(S6, began)
    return data


async def _settle(trip: Trip) -> None:
    """Stage 7: settle, before the client hears that the answer is complete."""
    call, world, hold = trip.call, trip.world, made(trip.admitted).hold
    began = call.spans.clock()
    try:
        trip.resolved = True
        model = made(trip.step).model
        await settle_charge(call, hold, made(trip.charge), world.ledger, model=model)
    except LedgerAway as error:
        # The lane settles it later. Where its queue was full, or this process ends before, the
        # node's report does.
        world.fleet.abandon(call.request)
        raise charge_delayed() from error
    finally:
        call.spans.add(S7, began)
    if trip.dispatched_to is not None:
        world.fleet.acknowledge(trip.dispatched_to, call.request)


async def _resolve(trip: Trip) -> None:
    """Settle or release what is still held, after an answer that was not a whole completion."""
    if trip.admitted is None or trip.resolved:
        return
    if trip.stream is not None and (trip.call.gone or trip.cut):
        await confirmed(trip, trip.stream)
    await trip.task.screened()
    _price(trip)
    try:
        await _settle(trip)
    except Refusal as refusal:
        log.error("request %s is settled later: %s", trip.call.request.hex(), refusal.code)


def _leave(trip: Trip) -> None:
    """Leave nothing behind: a running job, an open hold, an unwritten record."""
    if trip.watcher is not None:
        trip.watcher.cancel()
    if trip.stream is not None:
        trip.stream.cancel()
    trip.release()
    if trip.admitted is not None and not trip.resolved:
        trip.world.spawn(_resolve_cancelled(trip))
        return
    _record(trip)


async def _resolve_cancelled(trip: Trip) -> None:
    """The request's task was cancelled, or failed by a bug: nobody else will resolve its hold."""
    if trip.refusal is None:
        trip.cut, trip.failed_whole = True, not trip.out.started
    await _resolve(trip)
    _record(trip)


def _record(trip: Trip) -> None:
    if trip.key is None:
        return
    if trip.admitted is not None and trip.charge is not None:
        used = trip.used_tokens(trip.charge.usage)
        trip.world.limiter.correct(trip.key, used - trip.admitted.estimated_tokens)
    trip.call.round_trip.look()
    miss = find_miss(trip)
    trip.world.recorder.record(make_record(trip, miss))
    note_waste(trip, miss)
    if trip.ticket is not None and not trip.claim_told:
        trip.world.spawn(end_claim(trip, trip.ticket))
