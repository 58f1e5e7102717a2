"""The answer of `POST /v1/preflight` as JSON; amounts in nano-USD, tokens as they are billed."""

from __future__ import annotations

from typing import Any

import msgspec

from controlplane.gateway.ports import Room
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.tasks.preflight import Forecast
from controlplane.kernel.insights.hygiene import KINDS, WasteFinding
from controlplane.kernel.money import usd_text


def show_preflight(found: Forecast) -> bytes:
    step = found.step
    cluster = None if found.way is None else found.way.prepared.cluster
    window = step.model.context_window
    if cluster is not None:
        window = min(window, cluster.served.context_window)
    told: dict[str, Any] = {
        "object": "preflight",
        "model": found.ask.model,
        "route": found.route,
        "would_run": not found.refusals,
        "refusals": [_refusal(each) for each in found.refusals],
        "served_by": {
            "model": step.model.name,
            "pool": step.pool,
            "region": None if cluster is None else cluster.region,
            "nodes": 0 if cluster is None else len(cluster.nodes),
        },
        "tokens": {
            "prompt": found.prompt_tokens,
            "counted": found.counted,
            "cached_predicted": found.cached_tokens,
            "output_at_most": found.output_tokens,
            "estimated_for_limits": found.estimated_tokens,
        },
        "context": {
            "window": window,
            "left": window - found.prompt_tokens,
            "fits": "context_length_exceeded" not in {each.code for each in found.refusals},
        },
        "cost": {
            "prompt_nano": found.prompt_nano,
            "at_most_nano": found.most_nano,
            "held_nano": found.held_nano,
            "at_most_usd": usd_text(found.most_nano),
        },
        "limits": [_room(room, room in found.binding) for room in found.rooms],
        "budgets": [
            {
                "scope": budget.scope,
                "remaining_nano": budget.left_nano,
                "binds": budget.left_nano < found.held_nano,
            }
            for budget in found.standing.budgets
        ],
        "hygiene": [_finding(each) for each in found.findings],
    }
    return msgspec.json.encode(told)


def _refusal(refusal: Refusal) -> dict[str, object]:
    return {"status": refusal.status, **refusal.body["error"]}


def _room(room: Room, binds: bool) -> dict[str, object]:
    return {
        "scope": room.scope,
        "dimension": room.dimension,
        "limit": room.limit,
        "remaining": room.remaining,
        "reset_s": round(room.reset_s, 3),
        "binds": binds,
    }


def _finding(finding: WasteFinding) -> dict[str, object]:
    what, fix = KINDS[finding.kind]
    return {
        "kind": finding.kind,
        "what": what,
        "fix": fix,
        "tokens": finding.tokens,
        "saves_nano": finding.nano,
    }
