"""The one compact row that telemetry keeps of a request, made once it has ended."""

import msgspec

from controlplane.gateway.degraded import reason_of
from controlplane.gateway.plan import RoutePlan
from controlplane.gateway.ports import FinishedRequest
from controlplane.gateway.progress import NOTHING, Progress, Trail
from controlplane.gateway.results import Placement
from controlplane.gateway.snapshot import KeyRecord
from controlplane.kernel import receipt
from controlplane.kernel.clock import MICROSECOND_NS
from controlplane.kernel.keys.scopes import caller_within
from controlplane.kernel.rules import DIRECT
from controlplane.kernel.servertiming import read_server_timing
from controlplane.kernel.statuses import CLIENT_LEFT
from inference.contract.frames import Usage

SERVER_TIMING = b"server-timing"
OK = 200
ABSENT_US = -1
# Whose line the round-trip time is of.
CLIENT, PROXY = "client", "proxy"
USAGE_WORDS = {
    "engine": "reported by the engine",
    "engine_part": "reported by the engine, reasoning tokens estimated",
    "estimate": "estimated",
}


def make_record(run: Progress, key: KeyRecord, miss: receipt.Miss | None) -> FinishedRequest:
    """Everything but the key may be missing, as it is for a refusal."""
    call, trail, charge, answer = run.call, run.trail, run.charge, run.answer
    asked, step, placement = trail.asked, trail.step, trail.placement
    usage = charge.usage if charge else NOTHING
    link = placement.link if placement else None
    first_us = (call.first_token_ns - call.arrived_ns) // MICROSECOND_NS
    available, captured = _reuse(placement if usage.prompt_tokens else None)
    return FinishedRequest(
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
        receipt=receipt.write_receipt(_receipt(run, usage, miss)),
        safety=answer.verdict if answer else "",
        client_rtt_us=ABSENT_US if _is_proxied(run) else call.round_trip.us,
        retries=len(trail.attempts),
        trace=call.trace if call.trace and call.trace.is_recorded else None,
        user=asked.ask.user if asked else "",
    )


def _is_proxied(run: Progress) -> bool:
    """Whether the connection is that of a proxy that the operator named."""
    return caller_within(run.state.trusted_proxies, run.call.peer)


def _reuse(placement: Placement | None) -> tuple[int, int]:
    """Tokens of the prompt that the best node of the fleet had cached, and the chosen one."""
    if placement is None:
        return 0, 0
    return placement.receipt.available_tokens, placement.cached_tokens


def _receipt(run: Progress, usage: Usage, miss: receipt.Miss | None) -> receipt.Receipt:
    trail, call, refusal = run.trail, run.call, run.refusal
    routed = receipt.NONE if trail.placement is None else trail.placement.receipt
    asked = trail.asked
    rule = None if asked is None else asked.plan.rule
    chosen = asked is not None and bool(rule or asked.plan.listed)
    timing = call.header(SERVER_TIMING)
    placed = trail.placement is not None and usage.prompt_tokens
    return msgspec.structs.replace(
        routed,
        asked=asked.ask.model if asked and chosen else "",
        rule=rule.label if rule else routed.rule,
        steps=_steps(trail, asked.plan) if asked and chosen else (),
        prompt=asked.ask.assembly.label if asked and asked.ask.assembly else "",
        tools=asked.ask.tool_labels if asked else (),
        delivered_cached_tokens=usage.cached_tokens if placed else None,
        attempts=tuple(trail.attempts),
        queue=call.queued,
        usage=USAGE_WORDS.get(usage.source, ""),
        reasoning_tokens=usage.reasoning_tokens,
        images=len(asked.ask.pictures) if asked else 0,
        first_thought_us=max(0, call.thought_ns - call.arrived_ns) // MICROSECOND_NS,
        first_answer_us=max(0, call.answer_ns - call.arrived_ns) // MICROSECOND_NS,
        miss=miss,
        limit=refusal.limit if refusal else None,
        lack=reason_of(refusal) if refusal and refusal.degraded is not None else "",
        trace=call.trace.trace.hex() if call.trace else "",
        ignored=asked.ask.ignored if asked else (),
        labels=asked.project.kept(asked.ask.labels) if asked else {},
        masked=asked.ask.masks.counts if asked and asked.ask.masks else {},
        policy=_policy(run),
        line=_line(run),
        before=tuple(read_server_timing(timing)) if timing else (),
        size=asked.plan.sized.choice if asked and asked.plan.sized else None,
    )


def _steps(trail: Trail, plan: RoutePlan) -> tuple[receipt.PassedStep, ...]:
    """What came of the rule's steps, in their order."""
    steps, step = [*plan.unfit, *trail.passed], trail.step
    was_passed = step is not None and any(each.step == step.number for each in trail.passed)
    if step is not None and trail.placement is not None and not was_passed:
        steps.append(receipt.PassedStep(step.number, step.model.name, step.pool, receipt.SERVED))
    return tuple(sorted(steps, key=lambda each: each.step))


def _policy(run: Progress) -> str:
    """The policy of its project that refused it, or ended its answer."""
    if run.refusal is not None:
        return run.refusal.policy
    return "calls_max" if run.answer is not None and run.answer.capped else ""


def _line(run: Progress) -> receipt.NetworkLine | None:
    rtt_us = run.call.round_trip.us
    return (
        receipt.NetworkLine(rtt_us, PROXY if _is_proxied(run) else CLIENT) if rtt_us >= 0 else None
    )


def _status(run: Progress) -> int:
    if run.refusal is not None:
        return run.refusal.status
    return CLIENT_LEFT if (run.call.gone or run.cut) and not run.delivered else OK
