"""The cost of GPUs on the books: one journal entry for each pool and day that has ended."""

import uuid
from datetime import UTC, datetime, timedelta

from controlplane.billing.ledger.accounts import PAYABLE_GPU, PLATFORM, cogs
from controlplane.billing.ledger.journal import journal_book
from controlplane.billing.ledger.models import EntryKind, JournalEntry
from controlplane.core.jobs.each import each_alone
from controlplane.core.scope import organization_scope
from controlplane.fleet.hours import PoolDay, pool_days

# Gateways add a node's time every half minute; after this nothing more comes to a day.
GRACE = timedelta(minutes=10)
# A worker that was away longer leaves days to be booked by hand: `costs_book(days=...)`.
DAYS_BACK = 40
DAY = timedelta(days=1)


class CostJob:
    """Who books, as the audit names it."""

    actor_id: uuid.UUID | None = None
    actor_label = "gpu costs"


def costs_book(now: datetime | None = None, *, days: int = DAYS_BACK) -> int:
    """Book each ended day and pool that cost something and is not on the books; returns how many.

    Dr `cogs:<pool>`, Cr `payable:gpu`. Repeats find their entry by its key and book nothing.
    """
    ended = (now or datetime.now(UTC)) - GRACE
    end = ended.replace(hour=0, minute=0, second=0, microsecond=0)
    known = _booked(end - days * DAY)
    due = [
        each
        for each in pool_days(start=end - days * DAY, end=end)
        if each.cost_nano and _key(each) not in known
    ]
    return len(each_alone("book_costs", due, _book))


def _book(each: PoolDay) -> None:
    journal_book(
        organization=PLATFORM,
        kind=EntryKind.COGS,
        debit=cogs(each.pool),
        credit=PAYABLE_GPU,
        nano=each.cost_nano,
        reason=f"GPU time of pool {each.pool} on {each.day}",
        reference=str(each.day),
        idempotency=_key(each),
        actor=CostJob(),
    )


def _key(each: PoolDay) -> str:
    return f"cogs:{each.pool}:{each.day}"


def _booked(since: datetime) -> set[str]:
    """Keys of what is on the books already: a day is booked after it, never before."""
    with organization_scope([PLATFORM]):
        rows = JournalEntry.objects.filter(
            organization=PLATFORM, kind=EntryKind.COGS, booked_at__gte=since
        )
        return set(rows.values_list("idempotency", flat=True))
