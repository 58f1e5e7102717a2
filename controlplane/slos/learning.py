"""Budgets of stages learned from this installation, until somebody sets them.

The public budgets are those of a server with cores to spare. On another machine they would be over
from the first request on, which says nothing about that request.
"""

import math
from datetime import datetime, timedelta

from django.db import transaction

from controlplane.core.audit.entries import OPERATOR, audit_record
from controlplane.kernel.spans import STAGES
from controlplane.slos.models import EVERYONE, NOBODY, StageOwner
from controlplane.slos.runbooks import runbook_of
from controlplane.telemetry.selectors import SeriesQuery, series_whole

# So many requests settle a 95th percentile well enough for a budget with this headroom over it.
REQUESTS_MIN = 200
HEADROOM = 1.5
SHARE = 0.95
LOOKS_BACK = timedelta(hours=24)
STEP_S = 300
DIGITS = 2


def learned_us(p95_us: float, public_us: int) -> int:
    """Microseconds: the percentile with headroom in two digits, and no less than is public."""
    with_room = max(1.0, p95_us * HEADROOM)
    unit: int = 10 ** max(0, math.floor(math.log10(with_room)) + 1 - DIGITS)
    return max(public_us, math.ceil(with_room / unit) * unit)


def stage_budgets_learn(now: datetime) -> int:
    """Set the budgets of stages that have none of their own and enough requests; how many."""
    taken = set(StageOwner.objects.values_list("stage", flat=True))
    public = {name: budget_us for name, _, budget_us in STAGES if name not in taken}
    if not public:
        return 0
    query = SeriesQuery(
        organization=EVERYONE,
        start=now - LOOKS_BACK,
        end=now,
        step_s=STEP_S,
        everyone=tuple(public),
        own=(),
        gauges=(),
    )
    learned = 0
    for name, found in series_whole(query).items():
        p95_us = found.percentile(SHARE)
        if found.count < REQUESTS_MIN or p95_us is None:
            continue
        terms = {"budget_us": learned_us(p95_us, public[name]), "learned_from": found.count}
        with transaction.atomic():
            owner, made = StageOwner.objects.get_or_create(
                stage=name, defaults={"team": NOBODY, "runbook": runbook_of(name), **terms}
            )
            if made:
                audit_record(
                    OPERATOR, "stage_owner.learn", subject=owner, detail={"stage": name, **terms}
                )
                learned += 1
    return learned
