"""How a request ends: its hold is resolved exactly once, and nothing is left behind.

Whatever happened, `resolve` settles or releases what is held; it outlives the request's own task if
it must.
"""

import logging

from controlplane.gateway.after.misses.find import find_miss
from controlplane.gateway.after.record import make_record
from controlplane.gateway.after.said import keep_said
from controlplane.gateway.after.waste import note_waste
from controlplane.gateway.answer import Charge
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.ports import Hold, LedgerAway
from controlplane.gateway.progress import Out, Progress
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.s5_infer.helpers.confirmation import confirmed
from controlplane.gateway.s7_bill.price import price_usage
from controlplane.gateway.s7_bill.settle import charge_delayed, settle_charge
from controlplane.kernel.ids import public_request
from controlplane.kernel.spans import INDEX

S7 = INDEX["s7_bill"]

log = logging.getLogger(__name__)


def price(run: Progress, step: PlannedStep) -> Charge:
    """Stage 7, first half: what it costs."""
    began = run.call.spans.clock()
    charge = run.charge = price_usage(run.call, step.model.price, run.usage)
    run.call.spans.add(S7, began)
    return charge


async def settle(run: Progress, hold: Hold, charge: Charge, step: PlannedStep) -> None:
    """Stage 7: settle, before the client hears that the answer is complete; raises `Refusal`."""
    call, state = run.call, run.state
    began = call.spans.clock()
    try:
        run.settled = True
        await settle_charge(call, hold, charge, state.ledger, model=step.model)
    except LedgerAway as error:
        # The lane settles it later. Where its queue was full, or this process ends before, the
        # node's report does.
        state.fleet.abandon(call.request)
        raise charge_delayed() from error
    finally:
        call.spans.add(S7, began)
    if run.node is not None:
        state.fleet.acknowledge(run.node, call.request)


async def end_refused(run: Progress, refusal: Refusal, out: Out) -> None:
    run.fail(refusal, started=out.started)
    if run.trail.admitted is None and run.claim is not None:
        await run.claim.end(charged=False)
    if out.started and run.answer and (event := run.answer.failure(refusal)):
        out.fail(event)
    else:
        out.refuse(refusal, run.trail)
    await resolve(run)


async def resolve(run: Progress) -> None:
    """Settle or release what is still held, after an answer that was not a whole completion."""
    admitted, step = run.trail.admitted, run.trail.step
    if admitted is None or step is None or run.settled:
        return
    if run.stream is not None and (run.call.gone or run.cut):
        run.release()
        await confirmed(run.call, run.stream, hold_grace_s=run.state.hold_grace_s)
    if run.answer is not None:
        await run.answer.screened()
    try:
        await settle(run, admitted.hold, price(run, step), step)
    except Refusal as refusal:
        log.error("request %s is settled later: %s", public_request(run.call.request), refusal.code)


def leave(run: Progress, *, started: bool) -> None:
    """Leave nothing behind: a running job, an open hold, an unwritten record."""
    if run.stream is not None:
        run.stream.cancel()
    run.release()
    if run.trail.asked is not None:
        run.trail.asked.close()
    if run.trail.admitted is not None and not run.settled:
        run.state.spawn(_resolve_cancelled(run, started=started))
    else:
        _record(run)


async def _resolve_cancelled(run: Progress, *, started: bool) -> None:
    """The request's task was cancelled, or failed by a bug: nobody else will resolve its hold."""
    if run.refusal is None:
        run.cut, run.withheld = True, not started
    await resolve(run)
    _record(run)


def _record(run: Progress) -> None:
    key, admitted, charge = run.trail.key, run.trail.admitted, run.charge
    if key is None:
        return
    if admitted is not None and charge is not None:
        used = run.used_tokens(charge.usage)
        run.state.limiter.correct(admitted.asked.key, used - admitted.estimated_tokens)
    if not run.delivered or run.trail.asked is None or run.trail.asked.ask.stream:
        # That of a whole answer was read as it left, a moment ago.
        run.call.round_trip.look()
    miss = find_miss(run)
    run.state.recorder.record(make_record(run, key, miss))
    note_waste(run, miss)
    sized = run.trail.asked.plan.sized if run.trail.asked else None
    if sized is not None and run.refusal is None:
        # A retry of what was refused says nothing of the answer.
        run.state.sizes.ended(sized)
    if run.claim is not None and not run.claim.ended:
        charged = charge is not None and charge.amount_nano > 0
        run.state.spawn(run.claim.end(charged=charged))
    keep_said(run, key)
