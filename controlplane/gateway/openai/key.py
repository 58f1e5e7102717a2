"""`GET /v1/key`: what the key in hand is for, and what is left of its limits and budgets.

Names at the top are those of OpenRouter's `GET /api/v1/key`, in dollars; sums that must be exact
are in nano-USD below.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from controlplane.gateway.ports import BudgetRoom, KeyStanding, Room
from controlplane.gateway.snapshot import KeyRecord
from controlplane.kernel.keys.scopes import ENDPOINTS
from controlplane.kernel.money import NANO_PER_USD
from controlplane.kernel.rules import PRIORITY_HIGH, PRIORITY_LOW, PRIORITY_NORMAL

PRIORITY_WORDS = {PRIORITY_LOW: "low", PRIORITY_NORMAL: "normal", PRIORITY_HIGH: "high"}


def show_key(key: KeyRecord, rooms: Iterable[Room], standing: KeyStanding) -> bytes:
    own = next((budget for budget in standing.budgets if budget.scope == "key"), None)
    least = min(standing.budgets, key=lambda budget: budget.left_nano, default=None)
    told = {
        "object": "key",
        "label": key.label,
        "limit": None if own is None else _usd(own.limit_nano),
        "limit_remaining": None if least is None else _usd(least.left_nano),
        "limit_reset": None if own is None or own.period == "none" else own.period,
        "usage_daily": _usd(standing.day_nano),
        "usage_weekly": _usd(standing.week_nano),
        "usage_monthly": _usd(standing.month_nano),
        "expires_at": key.expires_at_s,
        "organization": key.organization,
        "project": key.project,
        "scopes": {
            "models": None if key.models is None else sorted(key.models),
            "endpoints": [
                one for one in ENDPOINTS if key.endpoints is None or one in key.endpoints
            ],
            "networks": list(key.networks),
            "tags": sorted(key.tags),
            "priority": PRIORITY_WORDS[key.priority],
        },
        "limits": [_limit(room) for room in rooms],
        "budgets": [_budget(budget) for budget in standing.budgets],
        "usage_nano": {
            "day": standing.day_nano,
            "week": standing.week_nano,
            "month": standing.month_nano,
        },
    }
    return msgspec.json.encode({"data": told})


def _limit(room: Room) -> dict[str, object]:
    return {
        "scope": room.scope,
        "dimension": room.dimension,
        "limit": room.limit,
        "remaining": room.remaining,
        "reset_s": round(room.reset_s, 3),
    }


def _budget(budget: BudgetRoom) -> dict[str, object]:
    return {
        "scope": budget.scope,
        "limit_nano": budget.limit_nano,
        "spent_nano": budget.spent_nano,
        "held_nano": budget.held_nano,
        "remaining_nano": budget.left_nano,
        "period": budget.period,
        "resets_at": budget.turns_at_s,
    }


def _usd(nano: int) -> float:
    return nano / NANO_PER_USD
