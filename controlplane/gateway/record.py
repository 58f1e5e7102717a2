"""The one compact row that telemetry keeps of a request, made from its trip."""

from __future__ import annotations

import msgspec

from controlplane.gateway.degraded import reason_of
from controlplane.gateway.misses.explain import Miss, Offered
from controlplane.gateway.misses.teller import Prompted, tenant_of
from controlplane.gateway.plan import PassedStep, Plan, PlannedStep
from controlplane.gateway.ports import RequestRecord
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.s4_route.node import Placement
from controlplane.gateway.trip import NOTHING, Trip, made
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


def make_record(trip: Trip, miss: Miss | None) -> RequestRecord:
    """Needs a known key; everything else may be missing, as it is for a refusal."""
    call, key, asked, placement = trip.call, made(trip.key), trip.asked, trip.placement
    step = trip.step
    usage = trip.charge.usage if trip.charge else NOTHING
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
        region=trip.cluster.region if trip.cluster else "",
        operation=asked.ask.operation if asked else "",
        status=_status(trip),
        error_code=(trip.refusal.code or "bad_request") if trip.refusal else "",
        finish=trip.task.finish,
        stream=asked.ask.stream if asked else False,
        prompt_tokens=usage.prompt_tokens,
        available_tokens=available,
        captured_tokens=captured,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
        total_us=call.elapsed_us(),
        ttft_us=first_us if call.first_token_ns else ABSENT_US,
        inter_token_us=call.inter_token_us,
        cost_nano=trip.charge.amount_nano if trip.charge else 0,
        spans=call.spans.to_bytes(),
        receipt=_receipt(trip, usage, miss),
        safety=trip.task.verdict,
        client_rtt_us=ABSENT_US if _is_proxied(trip) else call.round_trip.us,
        retries=len(trip.attempts),
        trace=call.trace if call.trace and call.trace.is_recorded else None,
    )


def _is_proxied(trip: Trip) -> bool:
    """Whether the connection is that of a proxy that the operator named."""
    return caller_within(trip.world.trusted_proxies, trip.call.peer)


def _reuse(placement: Placement | None) -> tuple[int, int]:
    """Tokens of the prompt that the best node of the fleet had cached, and the chosen one."""
    if placement is None:
        return 0, 0
    return placement.receipt.available_tokens, placement.cached_tokens


def _receipt(trip: Trip, usage: Usage, miss: Miss | None) -> bytes:
    """Why the request went where it did, or which limit refused it; empty where nothing tells."""
    told: dict[str, object] = {}
    if source := USAGE_WORDS.get(usage.source):
        told["usage"] = source
    if usage.reasoning_tokens:
        told["reasoning_tokens"] = usage.reasoning_tokens
    if trip.plan is not None and trip.plan.rule is not None:
        asked = made(trip.asked).ask.model
        told |= {"rule": trip.plan.label, "asked": asked, "steps": _steps(trip, trip.plan)}
    if trip.refusal is not None:
        told |= _of_refusal(trip.refusal)
    if trip.asked is not None and trip.asked.ask.assembly is not None:
        told["prompt"] = trip.asked.ask.assembly.label
    if trip.placement is not None:
        told |= msgspec.structs.asdict(trip.placement.receipt)
        if usage.prompt_tokens:
            told["delivered_cached_tokens"] = usage.cached_tokens
    if trip.attempts:
        told["attempts"] = trip.attempts
    if trip.call.queued is not None:
        told["queue"] = trip.call.queued
    if miss is not None:
        told["miss"] = miss
    if trip.call.trace is not None:
        told["trace"] = trip.call.trace.trace.hex()
    told |= _of_client(trip)
    return msgspec.json.encode(told) if told else b""


def _of_refusal(refusal: Refusal) -> dict[str, object]:
    """The limit that was reached, or what the fleet lacked."""
    if refusal.limit is not None:
        return {"limit": refusal.limit}
    return {"lack": reason_of(refusal)} if refusal.degraded is not None else {}


def _of_client(trip: Trip) -> dict[str, object]:
    """How long its line is, and what it did before the call."""
    told: dict[str, object] = {}
    if (rtt_us := trip.call.round_trip.us) >= 0:
        told["line"] = {"rtt_us": rtt_us, "of": PROXY if _is_proxied(trip) else CLIENT}
    if (timing := trip.call.header(SERVER_TIMING)) and (before := read_server_timing(timing)):
        told["before"] = before
    return told


def find_miss(trip: Trip) -> Miss | None:
    """Why tokens were not cached, where an engine that has an index computed the prompt."""
    usage = trip.charge.usage if trip.charge else NOTHING
    admitted, prompt, cluster, placement = trip.admitted, trip.prompt, trip.cluster, trip.placement
    if admitted is None or prompt is None or cluster is None or placement is None:
        return None
    text, (available, captured) = cluster.served.text, _reuse(placement)
    if text is None or not usage.prompt_tokens or not prompt.tokens:
        return None
    return trip.world.misses.tell(
        Prompted(
            tenant=tenant_of(prompt.salt, cluster.served.digest, made(trip.step).model.name),
            tokens=prompt.tokens,
            chains=prompt.chains,
            tools=tuple(tool["function"]["name"] for tool in admitted.ask.tools),
            text=text,
            content=admitted.snapshot.projects[admitted.key.project].content,
        ),
        Offered(
            caches=placement.link.caches_prefixes,
            block_size=placement.link.hello.block_size,
            prompt=len(prompt.tokens),
            delivered=usage.cached_tokens,
            predicted=captured,
            available=available,
        ),
        price=made(trip.step).model.price,
        prefill_tokens_per_s=placement.link.account.speed.prefill_tokens_per_s,
    )


def _steps(trip: Trip, plan: Plan) -> list[PassedStep]:
    """Steps in their order, each with what came of it."""
    steps = [*plan.unfit, *trip.passed]
    step = trip.step
    if step is not None and trip.placement is not None and not _passed(trip, step):
        steps.append(PassedStep(step.number, step.model.name, step.pool, SERVED))
    return sorted(steps, key=lambda each: each.step)


def _passed(trip: Trip, step: PlannedStep) -> bool:
    return any(each.step == step.number for each in trip.passed)


def _status(trip: Trip) -> int:
    if trip.refusal is not None:
        return trip.refusal.status
    return CLIENT_LEFT if (trip.call.gone or trip.cut) and not trip.ended else OK
