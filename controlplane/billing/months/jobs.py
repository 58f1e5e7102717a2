"""Closing months that are too large for one answer: asked for here, read through by a worker.

A worker that is killed leaves a claim that runs out; whoever comes next begins again, and a month
closes once whoever closes it.
"""

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from controlplane.billing.approvals.services import Asker
from controlplane.billing.ledger.hours import hours
from controlplane.billing.months.closes import period_close_now, require_over
from controlplane.billing.months.models import (
    ERROR_CHARS_MAX,
    CloseState,
    PeriodClose,
    PeriodCloseJob,
)
from controlplane.billing.months.periods import Period, close_of, oldest_open
from controlplane.core.audit.entries import OPERATOR, Actor, audit_record
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.tenants.access import require
from controlplane.tenants.selectors import organization_ids

# A month of so many requests is closed within the answer: it takes about a second.
CLOSE_AT_ONCE_REQUESTS = 20_000
# Longer than a window or a page takes; a killed worker's close stands still then.
CLAIM_FOR = timedelta(minutes=10)
TRIES_MAX = 5
DUE_PER_RUN_MAX = 20
AT_WORK = (CloseState.WAITING, CloseState.RUNNING)

Enqueue = Callable[[uuid.UUID, uuid.UUID], None]


class DueClose(NamedTuple):
    """A close that someone should go on with."""

    organization: uuid.UUID
    job: uuid.UUID


class ClaimLost(Exception):
    """Another worker has taken it."""


def period_close_ask(
    *, actor: Actor, organization: uuid.UUID, period: Period, enqueue: Enqueue
) -> PeriodClose | PeriodCloseJob:
    """Close a month at once, or have a worker do it where it has many requests.

    Asked again it is the same close. Raises ValidationError on `period` where it cannot be closed
    yet; what comparing it finds is told by the job.
    """
    require(actor, Action.PERIOD_CLOSE, organization)
    if (closed := close_of(organization, period)) is not None:
        return closed
    require_over(period)
    first = oldest_open(organization)
    if period < first:
        raise ValidationError({"period": f"There are no entries before {first}."})
    if period > first:
        raise ValidationError({"period": f"Close {first} first: months are closed in order."})
    sums = hours(organizations=[organization], start=period.start, end=period.end, by=())
    if sum(one.requests for one in sums) <= CLOSE_AT_ONCE_REQUESTS:
        return period_close_now(actor=actor, organization=organization, period=period)
    with organization_scope([organization]):
        rows = PeriodCloseJob.objects.filter(organization=organization, period=period.name)
        made = PeriodCloseJob(
            organization=organization,
            period=period.name,
            asked_by=actor.actor_id,
            asked_label=actor.actor_label,
        )
        # Two who ask at once get one job: the constraint says whose.
        PeriodCloseJob.objects.bulk_create([made], ignore_conflicts=True)
        # The other's may have ended in the meantime.
        found = rows.filter(state__in=AT_WORK).first() or rows.latest("created_at")
        if found.id == made.id:
            audit_record(
                actor,
                "period.close_ask",
                subject=made,
                organization_id=organization,
                detail={"period": period.name},
            )
        transaction.on_commit(lambda: enqueue(organization, found.id))
    return found


def period_close_run(due: DueClose) -> PeriodCloseJob | None:
    """Read the month through and close it; None where another worker has it, or it is over."""
    job = _claim(due)
    if job is None:
        return None

    def reached(moment: datetime | None) -> None:
        if not _save(job, reached_at=moment, claimed_until=Now() + CLAIM_FOR):
            raise ClaimLost

    try:
        period_close_now(
            actor=Asker(job.asked_by, job.asked_label),
            organization=job.organization,
            period=Period(job.period),
            reached=reached,
        )
    except ClaimLost:
        return None
    except ValidationError as error:
        told = " ".join(error.messages)[:ERROR_CHARS_MAX]
        _save(job, state=CloseState.FAILED, error=told, claim=None)
    else:
        _save(job, state=CloseState.DONE, claim=None)
    with organization_scope([due.organization]):
        return PeriodCloseJob.objects.get(id=job.id)


def period_closes_due() -> list[DueClose]:
    """Those of all organizations that wait, or whose worker has not been heard of."""
    with organization_scope(organization_ids(user=OPERATOR)):
        rows = PeriodCloseJob.objects.filter(_free(), state__in=AT_WORK).order_by("id")
        return [DueClose(*row) for row in rows.values_list("organization", "id")[:DUE_PER_RUN_MAX]]


def _claim(due: DueClose) -> PeriodCloseJob | None:
    with organization_scope([due.organization]):
        found = PeriodCloseJob.objects.filter(_free(), id=due.job, state__in=AT_WORK)
        given_up = f"Failed after {TRIES_MAX} interrupted attempts."
        if found.filter(tries__gte=TRIES_MAX).update(state=CloseState.FAILED, error=given_up):
            return None
        taken = found.update(
            claim=uuid.uuid4(),
            claimed_until=Now() + CLAIM_FOR,
            state=CloseState.RUNNING,
            reached_at=None,
            tries=F("tries") + 1,
        )
        return PeriodCloseJob.objects.get(id=due.job) if taken else None


def _free() -> Q:
    return Q(claimed_until__isnull=True) | Q(claimed_until__lt=Now())


def _save(job: PeriodCloseJob, **values: object) -> bool:
    with organization_scope([job.organization]):
        # One that was given up in the meantime is over, whoever still works on it.
        rows = PeriodCloseJob.objects.filter(id=job.id, claim=job.claim, state=CloseState.RUNNING)
        return bool(rows.update(**values))
