"""Which limit binds: those of a key, its project and its organization beside each other."""

import uuid
from dataclasses import dataclass

from controlplane.billing.budgets.models import UNLIMITED_NANO, Budget
from controlplane.billing.budgets.selectors import budget_map
from controlplane.billing.budgets.services import ProjectPart, budget_id
from controlplane.catalog.selectors import model_find
from controlplane.core.permissions import organization_scope
from controlplane.quotas.models import LIMITS_MAX
from controlplane.quotas.selectors import limit_parts_of
from controlplane.tenants.models import ApiKey

LEVELS = ("key", "project", "organization")
MONEY = "budget_nano"
OUTPUT = "output_tokens"


@dataclass(frozen=True)
class Effective:
    """One dimension. `levels` has a limit or None for key, project, organization (and model).

    Where there are such, a level with `_user` or `_model` behind it has what it gives each end
    user, and what it gives the requests to the model. `binds` is the narrowest of those with the
    least room; None where nothing limits.
    """

    dimension: str
    levels: dict[str, int | None]
    binds: str | None

    @property
    def limit(self) -> int | None:
        """What binds, in its unit."""
        return None if self.binds is None else self.levels[self.binds]


@dataclass(frozen=True)
class EffectiveView:
    """What a key may do with a model: `refusal` says why nothing, empty where it may."""

    refusal: str
    rows: list[Effective]


def effective_limits(*, key: ApiKey, model: str) -> EffectiveView:
    """Every dimension for a key and a model; the caller has found the key by a selector.

    Money is what is left: a level binds that has the least of it. End users have spent nothing.
    """
    subjects = dict(zip(LEVELS, (key.limits_id, key.project_id, key.organization_id), strict=True))
    with organization_scope([key.organization_id]):
        limits = limit_parts_of(subjects.values())
    rows = []
    for dimension in LIMITS_MAX:
        levels: dict[str, int | None] = dict.fromkeys(LEVELS)
        for level, subject in subjects.items():
            for one in limits.get(subject, ()):
                if one.model in ("", model):
                    part = "_model" if one.model else "_user" if one.per_user else ""
                    levels[level + part] = getattr(one, dimension)
        rows.append(Effective(dimension, levels, _least(levels)))
    wanted = subjects | {"project_user": budget_id(ProjectPart(key.project))}
    if model:
        wanted["project_model"] = budget_id(ProjectPart(key.project, model))
    budgets = budget_map(organization=key.organization_id, subjects=wanted.values())
    left = {
        level: _left(budgets, subject)
        for level, subject in wanted.items()
        if level in subjects or subject in budgets
    }
    rows.append(Effective(MONEY, left, _least(left)))
    found = model_find(name=model)
    if found is not None:
        bound: dict[str, int | None] = {"model": found.output_tokens_max}
        rows.append(Effective(OUTPUT, bound, "model"))
    return EffectiveView(_refusal(key, model, served=found is not None and found.enabled), rows)


def _least(levels: dict[str, int | None]) -> str | None:
    limited = [(limit, level) for level, limit in levels.items() if limit is not None]
    return min(limited, key=lambda one: one[0])[1] if limited else None


def _left(budgets: dict[uuid.UUID, Budget], subject: uuid.UUID) -> int | None:
    budget = budgets.get(subject)
    return None if budget is None or budget.lim >= UNLIMITED_NANO else budget.room_nano


def _refusal(key: ApiKey, model: str, *, served: bool) -> str:
    if key.allowed_models is not None and model not in key.allowed_models:
        return "The key does not allow this model."
    if key.read_only:
        return "The key is read-only."
    return "" if served else "No node serves a model with this name."
