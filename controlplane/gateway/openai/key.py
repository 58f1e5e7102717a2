"""`GET /v1/key`: what the key in hand is for, and what is left of its limits and budgets.

Names at the top are those of OpenRouter's `GET /api/v1/key`, in dollars; sums that must be exact
are in nano-USD below.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from controlplane.gateway.ports import BudgetRoom, KeyStanding, Room
from controlplane.gateway.snapshot import KeyRecord
from controlplane.kernel.ids import OrganizationId, ProjectId, public_id
from controlplane.kernel.keys.scopes import ENDPOINTS
from controlplane.kernel.money import NANO_PER_USD
from controlplane.kernel.rules import PRIORITY_HIGH, PRIORITY_LOW, PRIORITY_NORMAL

PRIORITY_WORDS = {PRIORITY_LOW: "low", PRIORITY_NORMAL: "normal", PRIORITY_HIGH: "high"}


class KeyScopes(msgspec.Struct):
    """What the key opens; null is everything."""

    models: list[str] | None
    endpoints: list[str]
    networks: list[str]
    tags: list[str]
    priority: str


class BudgetLeft(msgspec.Struct):
    """A budget that the key spends from, in the period that runs; `resets_at` in Unix seconds."""

    scope: str
    limit_nano: int
    spent_nano: int
    held_nano: int
    remaining_nano: int
    period: str
    resets_at: float | None


class KeyInHand(msgspec.Struct, kw_only=True):
    """A key with what is left to it; sums in dollars unless they say nano."""

    object: Literal["key"]
    label: str
    limit: float | None
    limit_remaining: float | None
    limit_reset: str | None
    usage_daily: float
    usage_weekly: float
    usage_monthly: float
    expires_at: float | None
    organization: OrganizationId
    project: ProjectId
    scopes: KeyScopes
    limits: list[Room]
    budgets: list[BudgetLeft]
    usage_nano: dict[str, int]


class KeyAnswer(msgspec.Struct):
    """As OpenRouter wraps it."""

    data: KeyInHand


def show_key(key: KeyRecord, rooms: Iterable[Room], standing: KeyStanding) -> bytes:
    own = next((budget for budget in standing.budgets if budget.scope == "key"), None)
    least = min(standing.budgets, key=lambda budget: budget.left_nano, default=None)
    day, week, month = standing.day_nano, standing.week_nano, standing.month_nano
    told = KeyInHand(
        object="key",
        label=key.label,
        limit=None if own is None else _usd(own.limit_nano),
        limit_remaining=None if least is None else _usd(least.left_nano),
        limit_reset=None if own is None or own.period == "none" else own.period,
        usage_daily=_usd(day),
        usage_weekly=_usd(week),
        usage_monthly=_usd(month),
        expires_at=key.expires_at_s,
        organization=public_id("org", key.organization),
        project=public_id("proj", key.project),
        scopes=KeyScopes(
            models=None if key.models is None else sorted(key.models),
            endpoints=[one for one in ENDPOINTS if key.endpoints is None or one in key.endpoints],
            networks=list(key.networks),
            tags=sorted(key.tags),
            priority=PRIORITY_WORDS[key.priority],
        ),
        limits=[replace(room, reset_s=round(room.reset_s, 3)) for room in rooms],
        budgets=[_budget(budget) for budget in standing.budgets],
        usage_nano={"day": day, "week": week, "month": month},
    )
    return msgspec.json.encode(KeyAnswer(told))


def _budget(one: BudgetRoom) -> BudgetLeft:
    sums = one.limit_nano, one.spent_nano, one.held_nano, one.left_nano
    return BudgetLeft(one.scope, *sums, one.period, one.turns_at_s)


def _usd(nano: int) -> float:
    return nano / NANO_PER_USD
