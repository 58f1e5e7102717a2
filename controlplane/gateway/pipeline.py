"""The seven stages, in order, for one request. This file is the table of contents of the product.

Each stage takes the frozen results of those before it and returns its own (`results.py`). What
generating text and embedding it do differently is the task's (`generation.py`, `embedding.py`); the
order is one. Before the first token a lost or full node is replaced, at most `ATTEMPTS_MAX` times
and while the retry budget lasts, and then the plan's next step is tried; after it a stream ends
with a typed error and without its end mark, unless its route lets another node go on.
How a request ends, whatever happens to it, is `ending.py`.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial

import msgspec

from controlplane.gateway.apart import done_whole, pick_decoder, prefill_apart
from controlplane.gateway.app_state import AppState
from controlplane.gateway.bounds import within
from controlplane.gateway.call import Call, ClientGone, trace_of
from controlplane.gateway.degraded import overloaded, reason_of, with_steps
from controlplane.gateway.ending import end_refused, leave, price, resolve, settle
from controlplane.gateway.http.exchange import Incoming
from controlplane.gateway.http.shape import ApiShape, Keeper
from controlplane.gateway.nodes.measured.retries import pause_s
from controlplane.gateway.nodes.stream import JobRejected, JobStream, NodeLost, SlowReader
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.progress import FAILED_FINISHES, Out, Passing, Progress, Trail
from controlplane.gateway.refusal import (
    CONTENT_FILTER,
    UNAVAILABLE,
    Refusal,
    content_filtered,
    grammar_failed,
    internal_error,
    node_lost,
    node_rejected,
    timed_out,
)
from controlplane.gateway.results import Admitted, Asked, Cluster, Placement, Prepared, Prompt
from controlplane.gateway.s1_admission.admit import admit, read_ask
from controlplane.gateway.s1_admission.arrival import note_arrival
from controlplane.gateway.s1_admission.authenticate import authenticate, check_scopes
from controlplane.gateway.s1_admission.claim import AnswerReplay, take_claim
from controlplane.gateway.s2_balance.balance import balance
from controlplane.gateway.s4_route.node import pick_node
from controlplane.gateway.s4_route.prefix import sought_of
from controlplane.gateway.s4_route.queue.request import NoRoom
from controlplane.gateway.s4_route.queue.room import find_room
from controlplane.gateway.s5_infer.dispatch import NodeChanged
from controlplane.gateway.s5_infer.helpers.confirmation import stop
from controlplane.gateway.s5_infer.remote_spans import note_remote_spans
from controlplane.gateway.s6_finish.write import write_out
from controlplane.gateway.task import Answer, RequestTask
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.receipt import NodeAttempt, PassedStep
from controlplane.kernel.spans import INDEX
from inference.contract.frames import Output

ATTEMPTS_MAX = 3
S1, S2, S3, S4, S5, S6 = (
    INDEX[name]
    for name in ("s1_admission", "s2_balance", "s3_tokenize", "s4_route", "s5_infer", "s6_finish")
)
RETRY_CODES = frozenset({"full", "draining", "unknown_model"})
INTERNAL = 500
SLOW_START = "no first token within the time of its route"
MS_PER_S = 1000

log = logging.getLogger(__name__)


async def serve(call: Call, exchange: Incoming, shape: ApiShape, state: AppState, out: Out) -> None:
    """Answer one request on `out`; every failure becomes an answer too."""
    call.trace = trace_of(call, state.trace_ratio)
    state.served += 1
    run = Progress(call, state, Trail())
    kept = shape.keeping(run) if shape.keeping is not None else None
    try:
        await _stages(run, exchange, shape, out, kept)
        run.delivered = True
    except AnswerReplay as replay:
        out.replay(replay.kept, run.trail)
        run.delivered = True
    except Refusal as refusal:
        await end_refused(run, refusal, out)
    except ClientGone:
        await resolve(run)
    except Exception:
        # A bug: the edge answers 500 and logs it, the record must say so too.
        run.fail(internal_error("internal_error", "Internal server error."), started=out.started)
        raise
    finally:
        if kept is not None:
            kept.left()
        leave(run, started=out.started)


async def _stages(
    run: Progress, exchange: Incoming, shape: ApiShape, out: Out, kept: Keeper | None
) -> None:
    admitted, task = await _admit(run, exchange, shape, kept)
    if kept is not None:
        await kept.admitted(out)
    step, answer = await _walk(run, admitted, task, out)
    if run.call.gone:
        raise ClientGone
    await answer.screened()
    charge = price(run, step)
    last = answer.last_bytes(charge)
    await settle(run, admitted.hold, charge, step)
    if kept is not None:
        last = await kept.completed(last)
    if run.claim is not None:
        run.claim.note(last)
        await run.claim.keep(stream=admitted.asked.ask.stream)
    out.end(last, run.trail)


async def _admit(
    run: Progress, exchange: Incoming, shape: ApiShape, kept: Keeper | None
) -> tuple[Admitted, RequestTask]:
    """Stage 1: who asks, for what, within which limits, and is there money for it."""
    call, state, trail = run.call, run.state, run.trail
    try:
        note_arrival(call, state.trusted_proxies)
        key = trail.key = authenticate(call, state.keys)
        check_scopes(call, key, shape.endpoint, state.places)
        if kept is None:
            asked = await read_ask(call, exchange, shape.parse, state, key=key)
        else:
            asked = await kept.read(exchange, key)
        trail.asked = asked
        trail.begin(asked.plan.steps[0])
        if asked.ticket is not None:
            run.claim = await take_claim(call, asked.ticket, state.claims)
        task = shape.task(call, asked, state)
        admitted = trail.admitted = await admit(call, asked, state, count_prompt=task.count)
        if run.claim is not None:
            await run.claim.hold(call)
        state.retries.deposit()
        return admitted, task
    finally:
        call.spans.add(S1, call.arrived_ns)


async def _walk(
    run: Progress, admitted: Admitted, task: RequestTask, out: Out
) -> tuple[PlannedStep, Answer]:
    """Stages 2 to 6, step by step of the plan, until one serves; the last lack is the answer.

    What the model of a later step cannot do is no fault of the request: that step is passed, too.
    """
    lack: Refusal | None = None
    for step in admitted.asked.plan.steps:
        run.trail.begin(step)
        run.stream = None
        try:
            cluster = run.trail.cluster = _balance(run, admitted.asked, step)
            prompt = run.trail.prompt = await _tokenize(run, task, step, cluster)
            run.trail.asked = _told(admitted.asked, prompt.ignored)
            prepared = Prepared(step, cluster, prompt)
            return step, await _infer(run, admitted, task, prepared, out)
        except Refusal as refusal:
            misfit = lack is not None and refusal.status < INTERNAL
            passes = admitted.asked.plan.passes(refusal.code)
            if out.started:
                # Its node was lost, and nobody could go on: what came before is charged.
                if refusal.status == UNAVAILABLE:
                    raise node_lost() from refusal
                raise
            if not (misfit or passes or refusal.status == UNAVAILABLE):
                raise
            lack = lack if misfit else refusal
            if refusal.code == CONTENT_FILTER:
                await _let_go(run)
            passed = PassedStep(step.number, step.model.name, step.pool, reason_of(refusal))
            run.trail.passed.append(passed)
    if lack is None:
        raise AssertionError("a plan without steps")
    if lack.status < INTERNAL:
        raise lack
    raise with_steps(lack, run.trail.passed)


async def _let_go(run: Progress) -> None:
    """End the job of a withheld answer, which nobody pays for: the same node may serve the next."""
    if run.stream is None or run.node is None:
        return
    with suppress(TimeoutError):
        await within(run.node.limits.cancel_confirm_s, run.stream.settled())
    run.state.fleet.reports.acknowledge(run.node, run.call.request)


def _told(asked: Asked, ignored: tuple[str, ...]) -> Asked:
    """The request with what the step's model ignores, which its client is told."""
    if not ignored:
        return asked
    ask = msgspec.structs.replace(asked.ask, ignored=(*asked.ask.ignored, *ignored))
    return msgspec.structs.replace(asked, ask=ask)


def _balance(run: Progress, asked: Asked, step: PlannedStep) -> Cluster:
    """Stage 2: which cluster."""
    call, state = run.call, run.state
    began = call.spans.clock()
    try:
        return balance(call, asked.ask, step, state)
    except Refusal as refusal:
        if refusal.status == UNAVAILABLE:
            state.unmet.note(step.pool, monotonic_s())
        raise
    finally:
        call.spans.add(S2, began)


async def _tokenize(
    run: Progress, task: RequestTask, step: PlannedStep, cluster: Cluster
) -> Prompt:
    """Stage 3: token ids, window, block hashes."""
    began = run.call.spans.clock()
    try:
        return await task.tokenize(step, cluster)
    finally:
        run.call.spans.add(S3, began)


async def _infer(
    run: Progress, admitted: Admitted, task: RequestTask, prepared: Prepared, out: Out
) -> Answer:
    """Stages 4 to 6, again on another node while nothing has reached the client."""
    trail = run.trail
    tried: set[str] = set()
    answer: Answer | None = None
    prepared = await prefill_apart(run, admitted.asked, prepared)
    for _ in range(ATTEMPTS_MAX):
        if tried:
            await _pause(run, len(tried))
        placement = trail.placement = await _route(run, admitted, prepared, tried)
        if answer is None or not out.started:
            answer = run.answer = task.begin(prepared)
        try:
            await _work(run, admitted.asked, answer, placement, out)
            return answer
        except NodeChanged:
            continue
        except JobRejected as error:
            if error.code not in RETRY_CODES:
                field = admitted.asked.ask.grammar_field
                raise node_rejected(error.code, str(error), grammar_field=field) from error
            trail.attempts.append(NodeAttempt(placement.link.identity.name, error.code))
        except NodeLost as error:
            rest = _after_loss(run, answer, placement, error, out)
            if rest is not None:
                trail.prompt = rest
                prepared = msgspec.structs.replace(prepared, prompt=rest)
        except SlowReader as error:
            message = "The client read too slowly, so generation stopped."
            raise internal_error("slow_reader", message) from error
        tried.add(placement.link.identity.id)
        prepared = done_whole(prepared)
        if not out.started:
            # What it has computed went to nobody: nobody pays for it.
            run.stream = None
    raise overloaded(NoRoom("failed"))


def _after_loss(
    run: Progress, answer: Answer, placement: Placement, error: NodeLost, out: Out
) -> Prompt | None:
    """Go on if another node may: with what it has to be asked, where some is delivered already."""
    name = placement.link.identity.name
    log.warning("node lost name=%s reason=%s", name, error)
    run.trail.attempts.append(NodeAttempt(name, str(error)))
    if not run.call.left_ms():
        raise timed_out(run.call.deadline_s) from error
    rest = None
    if out.started and not run.call.gone and run.stream is not None:
        rest = answer.resume(run.stream)
    if run.call.gone or (out.started and rest is None):
        raise node_lost() from error
    return rest


async def _pause(run: Progress, failures: int) -> None:
    """Before another attempt: is one left in the budget, and not all of them at once."""
    if not run.state.retries.withdraw():
        raise overloaded(NoRoom("failed"))
    await asyncio.sleep(pause_s(failures))


async def _route(
    run: Progress, admitted: Admitted, prepared: Prepared, tried: set[str]
) -> Placement:
    call, state = run.call, run.state
    began = call.spans.clock()
    try:
        roomy = await find_room(call, admitted.asked, prepared, state, tried=tried)
        if prepared.prompt.transfer is not None:
            return pick_decoder(run, admitted.asked, prepared, roomy)
        sought = sought_of(admitted.asked, prepared)
        return pick_node(call, sought, state.fleet, state.routing, nodes=roomy)
    finally:
        call.spans.add(S4, began)


async def _work(
    run: Progress, asked: Asked, answer: Answer, placement: Placement, out: Out
) -> None:
    """Stages 5 and 6 on one node, batch by batch."""
    call, passing = run.call, Passing(run, answer, out)
    dispatched_us = call.elapsed_us()
    stream = run.stream = answer.dispatch(placement)
    run.node = placement.link
    timers = _timers(call, asked, placement, stream)
    sink = None if answer.waits else passing.take
    try:
        while outputs := await stream.batch(sink):
            passing.comes()
            if not (stream.cancelled or answer.ended):
                _check_finishes(run, asked, outputs)
            data = await answer.take(outputs)
            if answer.ended and _withheld(run, asked, answer, out):
                raise content_filtered("The answer was withheld for its content.")
            if data:
                if run.claim is not None:
                    run.claim.note(data)
                await write_out(call, out, data, run.trail)
            passing.gone()
            if answer.ended:
                return
        passing.comes()
        if stream.cancelled and not (call.gone or answer.ended):
            raise timed_out(call.deadline_s)
    finally:
        for timer in timers:
            timer.cancel()
        call.on_gone = None
        # A no-op where the job has ended; else nobody wants the rest.
        stream.cancel()
        note_remote_spans(call, stream, dispatched_us=dispatched_us)


def _withheld(run: Progress, asked: Asked, answer: Answer, out: Out) -> bool:
    """Whether an answer was withheld for its content, and another model is to answer instead."""
    plan = asked.plan
    filtered = answer.finish == CONTENT_FILTER and not out.started
    return filtered and plan.passes(CONTENT_FILTER) and run.trail.step is not plan.steps[-1]


def _timers(
    call: Call, asked: Asked, placement: Placement, stream: JobStream
) -> list[asyncio.TimerHandle]:
    """What ends a job early: its client, the deadline, the route's bound of the first token."""
    loop = asyncio.get_running_loop()
    link = placement.link
    timers: list[asyncio.TimerHandle] = []
    end = partial(stop, stream, timers, link.limits.cancel_confirm_s)
    call.on_gone = end
    if call.gone:
        end()
    timers.append(loop.call_later(call.left_ms() / MS_PER_S, end))
    rule = asked.plan.rule
    if rule is not None and rule.first_token_s is not None:
        timers.append(loop.call_later(rule.first_token_s, link.give_up, call.request, SLOW_START))
    return timers


def _check_finishes(run: Progress, asked: Asked, outputs: list[Output]) -> None:
    """A choice that the node gave up ends the attempt."""
    failed = {output.finish for output in outputs} & FAILED_FINISHES
    if not failed:
        return
    field, prompt = asked.ask.grammar_field, run.trail.prompt
    # Where a server got the request itself, its stream may have broken for any other reason.
    if field and "error" in failed and not (prompt and prompt.text):
        raise grammar_failed(field)
    raise NodeLost("the node gave it up")
