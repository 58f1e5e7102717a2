"""Counts summed into longer steps, and old ones dropped; each statement is short."""

from datetime import datetime, timedelta
from functools import partial

from django.utils import timezone

from controlplane.core.jobs.each import drop_in_bites
from controlplane.core.queries import value
from controlplane.slos.standings import STEP_DAY, STEP_FIVE, STEP_HOUR, STEP_MIN

# Gateways may write a minute late, after an outage of the database.
REOPEN = timedelta(minutes=20)
STEPS = ((STEP_MIN, STEP_FIVE), (STEP_FIVE, STEP_HOUR), (STEP_HOUR, STEP_DAY))
# Longer than any window reads them; of the last, a year and the month that it begins in.
KEPT_DAYS = {STEP_MIN: 4, STEP_FIVE: 8, STEP_HOUR: 40, STEP_DAY: 400}
ROWS_DELETED_MAX = 20_000
# Of each step in a run each 10 minutes: 2,000 objectives on 100 gateways write half as much.
BITES_MAX = 200


def counts_roll_up(now: datetime | None = None) -> int:
    """Bring 5 minutes, hours and days up to date; returns rows written."""
    moment = now or timezone.now()
    # A step that holds a late minute began up to its width before it.
    return sum(
        value(
            "SELECT slo_roll_up(%s, %s, %s, %s)",
            [source, step, moment, REOPEN + timedelta(seconds=source)],
        )
        for source, step in STEPS
    )


def counts_forget(now: datetime | None = None) -> int:
    """Drop what is too old and summed in a longer step, bite by bite; returns rows dropped."""
    moment, longer = now or timezone.now(), dict(STEPS)

    def bite(step: int, days: int, rows_max: int) -> int:
        values = [step, longer.get(step, 0), moment - timedelta(days=days), rows_max]
        return int(value("SELECT slo_forget(%s, %s, %s, %s)", values))

    return sum(
        drop_in_bites(partial(bite, step, days), rows_max=ROWS_DELETED_MAX, bites_max=BITES_MAX)
        for step, days in KEPT_DAYS.items()
    )
