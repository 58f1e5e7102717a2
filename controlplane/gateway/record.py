"""The one compact row that telemetry keeps of a request, made once it has ended."""

from __future__ import annotations

import msgspec

from controlplane.gateway.degraded import reason_of
from controlplane.gateway.misses.explain import Miss
from controlplane.gateway.plan import PassedStep
from controlplane.gateway.ports import RequestRecord
from controlplane.gateway.progress import NOTHING, Progress, Trail
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.results import Asked, Placement
from controlplane.gateway.snapshot import KeyRecord
from controlplane.kernel.clock import MICROSECOND_NS
from controlplane.kernel.rules import DIRECT
from controlplane.kernel.scopes import caller_within
from controlplane.kernel.servertiming import read_server_timing
from controlplane.kernel.statuses import CLIENT_LEFT
from inference.contract.frames import Usage

SERVER_TIMING = b"server-timing"
OK = 200
ABSENT_US = -1
SERVED = "served"
# Whose line the round-trip time is of.
CLIENT, PROXY = "client", "proxy"
USAGE_WORDS = {"engine": "reported by the engine", "estimate": "estimated"}


def make_record(run: Progress, key: KeyRecord, miss: Miss | None) -> RequestRecord:
    """Everything but the key may be missing, as it is for a refusal."""
    call, trail, charge, answer = run.call, run.trail, run.charge, run.answer
    asked, step, placement = trail.asked, trail.step, trail.placement
    usage = charge.usage if charge else NOTHING
    link = placement.link if placement else None
    first_us = (call.first_token_ns - call.arrived_ns) // MICROSECOND_NS
    available, captured = _reuse(placement if usage.prompt_tokens else None)
    return RequestRecord(
        request=call.request,
        started_us=call.started_us,
        organization=key.organization,
        project=key.project,
        key=key.id,
        model=step.model.name if step else "",
        route=asked.plan.label if asked else DIRECT,
        node=link.identity.name if link else "",
        pool=step.pool if step else "",
        region=trail.cluster.region if trail.cluster else "",
        operation=asked.ask.operation if asked else "",
        status=_status(run),
        error_code=(run.refusal.code or "bad_request") if run.refusal else "",
        finish=answer.finish if answer else "",
        stream=asked.ask.stream if asked else False,
        prompt_tokens=usage.prompt_tokens,
        available_tokens=available,
        captured_tokens=captured,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
        total_us=call.elapsed_us(),
        ttft_us=first_us if call.first_token_ns else ABSENT_US,
        inter_token_us=call.inter_token_us,
        cost_nano=charge.amount_nano if charge else 0,
        spans=call.spans.to_bytes(),
        receipt=_receipt(run, usage, miss),
        safety=answer.verdict if answer else "",
        client_rtt_us=ABSENT_US if _is_proxied(run) else call.round_trip.us,
        retries=len(trail.attempts),
        trace=call.trace if call.trace and call.trace.is_recorded else None,
    )


def _is_proxied(run: Progress) -> bool:
    """Whether the connection is that of a proxy that the operator named."""
    return caller_within(run.world.trusted_proxies, run.call.peer)


def _reuse(placement: Placement | None) -> tuple[int, int]:
    """Tokens of the prompt that the best node of the fleet had cached, and the chosen one."""
    if placement is None:
        return 0, 0
    return placement.receipt.available_tokens, placement.cached_tokens


def _receipt(run: Progress, usage: Usage, miss: Miss | None) -> bytes:
    """Why the request went where it did, or which limit refused it; empty where nothing tells."""
    trail, call = run.trail, run.call
    told: dict[str, object] = {}
    if source := USAGE_WORDS.get(usage.source):
        told["usage"] = source
    if usage.reasoning_tokens:
        told["reasoning_tokens"] = usage.reasoning_tokens
    if trail.asked is not None:
        told |= _of_rule(trail, trail.asked)
    if run.refusal is not None:
        told |= _of_refusal(run.refusal)
    if trail.asked is not None and trail.asked.ask.assembly is not None:
        told["prompt"] = trail.asked.ask.assembly.label
    if trail.placement is not None:
        told |= msgspec.structs.asdict(trail.placement.receipt)
        if usage.prompt_tokens:
            told["delivered_cached_tokens"] = usage.cached_tokens
    if trail.attempts:
        told["attempts"] = trail.attempts
    if call.queued is not None:
        told["queue"] = call.queued
    if miss is not None:
        told["miss"] = miss
    if call.trace is not None:
        told["trace"] = call.trace.trace.hex()
    told |= _of_client(run)
    return msgspec.json.encode(told) if told else b""


def _of_rule(trail: Trail, asked: Asked) -> dict[str, object]:
    """Which rule decided, and what came of its steps, in their order."""
    plan, step = asked.plan, trail.step
    if plan.rule is None:
        return {}
    steps = [*plan.unfit, *trail.passed]
    was_passed = step is not None and any(each.step == step.number for each in trail.passed)
    if step is not None and trail.placement is not None and not was_passed:
        steps.append(PassedStep(step.number, step.model.name, step.pool, SERVED))
    steps.sort(key=lambda each: each.step)
    return {"rule": plan.label, "asked": asked.ask.model, "steps": steps}


def _of_refusal(refusal: Refusal) -> dict[str, object]:
    """The limit that was reached, or what the fleet lacked."""
    if refusal.limit is not None:
        return {"limit": refusal.limit}
    return {"lack": reason_of(refusal)} if refusal.degraded is not None else {}


def _of_client(run: Progress) -> dict[str, object]:
    """How long its line is, and what it did before the call."""
    told: dict[str, object] = {}
    if (rtt_us := run.call.round_trip.us) >= 0:
        told["line"] = {"rtt_us": rtt_us, "of": PROXY if _is_proxied(run) else CLIENT}
    if (timing := run.call.header(SERVER_TIMING)) and (before := read_server_timing(timing)):
        told["before"] = before
    return told


def _status(run: Progress) -> int:
    if run.refusal is not None:
        return run.refusal.status
    return CLIENT_LEFT if (run.call.gone or run.cut) and not run.delivered else OK
