"""Keys with all that belongs to them: limits and budget at their making, and what they touched."""

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.billing.budgets.services import BudgetDraft, budget_plan
from controlplane.billing.ledger.hours import HourSum, hours
from controlplane.catalog.selectors import models_unknown
from controlplane.core.audit.entries import Actor
from controlplane.quotas.services import LimitSet, key_limits_begin
from controlplane.routing.selectors import aliases_known
from controlplane.telemetry.selectors import key_last_used
from controlplane.telemetry.selectors_usage import KeyTouch, key_last_begun, key_touches
from controlplane.tenants.keys import (
    EVERY_MODEL,
    KEY_LIFETIME_DAYS_DEFAULT,
    CreatedKey,
    KeyTerms,
    apikey_create,
)
from controlplane.tenants.models import ApiKey, Project

HOUR = timedelta(hours=1)
# Telemetry keeps requests for as long; the ledger's hours are for ever.
KEPT = timedelta(days=30)
# An old key still used this close to its end will be missed by someone.
ENDING = timedelta(days=2)
LATELY = timedelta(days=1)


@dataclass(frozen=True)
class KeyOrder:
    """A key as it is asked for. `lifetime_days` None never expires; `form` makes it once."""

    label: str
    terms: KeyTerms = EVERY_MODEL
    lifetime_days: int | None = KEY_LIFETIME_DAYS_DEFAULT
    limits: LimitSet = field(default_factory=LimitSet)
    budget: BudgetDraft | None = None
    form: uuid.UUID | None = None


@dataclass(frozen=True)
class KeyReport:
    """What a key and those of its line did: `charged` by model for ever, `touched` recently.

    `took_ms` is how long after its revocation the last request was still taken; None where it is
    not revoked, 0 where none was.
    """

    charged: list[HourSum]
    touched: list[KeyTouch]
    first: datetime | None
    last: datetime | None
    took_ms: int | None

    @property
    def spent_nano(self) -> int:
        return sum(row.nano for row in self.charged)

    @property
    def requests(self) -> int:
        return sum(row.requests for row in self.touched)


def key_make(*, actor: Actor, project: Project, order: KeyOrder) -> CreatedKey:
    """A key with its limits and its budget, or none of it; a budget takes the right to set one."""
    # Each name is of a model, or an alias of rules.
    unknown = models_unknown(order.terms.models or ())
    if unknown and (left := set(unknown) - aliases_known()):
        raise ValidationError({"models": f"Model {min(left)!r} not found."})
    with transaction.atomic():
        made = apikey_create(
            actor=actor,
            project=project,
            label=order.label,
            terms=order.terms,
            lifetime_days=order.lifetime_days,
            form=order.form,
        )
        key_limits_begin(actor=actor, key=made.key, wanted=order.limits)
        if order.budget is not None:
            budget_plan(actor=actor, subject=made.key, draft=order.budget)
    return made


def key_report(*, key: ApiKey) -> KeyReport:
    """What this one key did; the caller has found it by a selector, so may see it."""
    now = timezone.now()
    start = key.created_at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    end = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
    sums = hours(organizations=[key.organization_id], start=start, end=end, by=("key", "model"))
    charged = [row for row in sums if row.key == key.id]
    touched = key_touches(organization=key.organization_id, keys=[key.id], since=now - KEPT)
    return KeyReport(
        charged=charged,
        touched=touched,
        first=min((row.first for row in touched), default=None),
        last=max((row.last for row in touched), default=None),
        took_ms=revocation_ms(key=key),
    )


def revocation_ms(*, key: ApiKey) -> int | None:
    """From a revocation to the beginning of the last request that a gateway still took."""
    if key.revoked_at is None:
        return None
    last = key_last_begun(organization=key.organization_id, key=key.id, after=key.revoked_at)
    return 0 if last is None else round((last - key.revoked_at) / timedelta(milliseconds=1))


def keys_missed_soon(*, organization: uuid.UUID, keys: list[ApiKey]) -> set[uuid.UUID]:
    """Of rotated keys those that end soon and were used recently: someone still has the old one."""
    now, used = timezone.now(), key_last_used(organization)
    return {
        key.id
        for key in keys
        if key.replaced
        and key.expires_at is not None
        and now < key.expires_at <= now + ENDING
        and (at := used.get(key.id)) is not None
        and at >= now - LATELY
    }
