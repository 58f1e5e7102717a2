"""A site that looks used: keys, limits, budgets, rules, and a ledger of this month and the last.

On top of what `site.fill` makes; for pictures of pages and for tests of pages that show much.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg

from controlplane.billing.budgets.models import BudgetPeriod
from controlplane.billing.budgets.services import BudgetDraft, Subject, budget_plan
from controlplane.billing.ledger.reconcile import reconcile_requests
from controlplane.billing.ledger.services import seal_ledger
from controlplane.billing.ledger.spend import hour_after
from controlplane.catalog.prompts import PromptVersions, prompt_create
from controlplane.kernel.money import NANO_PER_USD
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from controlplane.quotas.services import rate_limit_set
from controlplane.slos.services import objective_create
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import ApiKey
from controlplane.tenants.services import project_create
from tests.support.fleet import MODEL
from tests.support.money import rows, superuser_dsn
from tests.support.month import INSERT_LINE, Line
from tests.support.objectives import count, draft
from tests.support.people import Cast
from tests.support.rules import generates, publish

PRICES = {
    MODEL: Price(version=1, input_pico=150_000, cached_pico=15_000, output_pico=600_000),
    "large": Price(version=1, input_pico=900_000, cached_pico=90_000, output_pico=3_600_000),
}
DAYS_BACK = 52
OBJECTIVE_MINUTES = 90
PARTITIONS_AT_ONCE = timedelta(days=30)
LINES_A_DAY = 3
# As if each line were the charges of many requests.
TOKENS_A_LINE = 1_500_000
# The history's charges were booked when it was written; they should have been as it happened.
REBOOK = """
    UPDATE transfers t SET booked_at = r.started_at + r.total_us * interval '1 us' - interval '3 ms'
    FROM request_records r WHERE r.request = t.request
"""
# Budgets count what their periods were charged.
COUNT = """
    UPDATE budgets b SET posted = b.posted + coalesce((
        SELECT sum(t.amount) FROM transfers t
        WHERE b.id IN (t.organization, t.project, t.key) AND t.kind = 'settle'
          AND t.booked_at >= terms.began_at), 0)
    FROM budget_terms terms WHERE terms.budget = b.id
"""


def furnish(cast: Cast, key: ApiKey) -> None:
    """Make the site look used; `key` has sent what it was sent."""
    support = project_create(actor=cast.alice, organization=cast.acme, name="support")
    bot = apikey_create(actor=cast.alice, project=support, label="support bot").key
    batch = apikey_create(actor=cast.alice, project=cast.project, label="nightly batch").key
    _set_limits(cast, bot)
    _write_texts(cast)
    _write_objectives(cast)
    write_months([key, bot, batch])
    hour = hour_after(datetime.now(UTC)) - timedelta(hours=1)
    reconcile_requests(cast.acme.id, hour - timedelta(hours=1), hour)


def write_months(keys: list[ApiKey]) -> None:
    """Charges of every day of the last weeks up to now, and those of the history in their time."""
    now = datetime.now(UTC)
    first = now - timedelta(days=DAYS_BACK)
    for begins in (first, first + PARTITIONS_AT_ONCE):
        ends = begins + PARTITIONS_AT_ONCE
        rows("SELECT ledger_make_partitions(%s, %s)", begins.date(), ends.date())
    lines = [line.row for line in _lines(keys, first, now)]
    with psycopg.connect(superuser_dsn()) as connection, connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(REBOOK)
        cursor.executemany(INSERT_LINE, lines)
        cursor.execute(COUNT)
    seal_ledger()


def _set_limits(cast: Cast, bot: ApiKey) -> None:
    alice, acme = cast.alice, cast.acme
    plans: tuple[tuple[Subject, int, BudgetPeriod], ...] = (
        (acme, 150, BudgetPeriod.MONTH),
        (cast.project, 100, BudgetPeriod.MONTH),
        (bot, 4, BudgetPeriod.DAY),
    )
    for subject, usd, period in plans:
        terms = BudgetDraft(
            allowance_nano=usd * NANO_PER_USD, period=period.value, alerts=(50, 80, 100)
        )
        budget_plan(actor=alice, subject=subject, draft=terms)
    rate_limit_set(actor=alice, subject=acme, requests_per_min=6_000, concurrency=400)
    rate_limit_set(actor=alice, subject=bot, tokens_per_min=200_000)


def _write_texts(cast: Cast) -> None:
    """A rule in force, and a template."""
    publish(generates("small-first", MODEL, aliases=["fast"]), note="the small model first")
    alice, acme = cast.alice, cast.acme
    template = prompt_create(actor=alice, organization_id=acme.id, name="greeting")
    body = {"messages": [{"role": "system", "content": "You help guests of our hotel."}]}
    version = PromptVersions(alice, template).draft_create(body, note="the first")
    PromptVersions(alice, version.template).publish(version)


def _write_objectives(cast: Cast) -> None:
    """An objective that is kept and one that is not, with counts of the last hours."""
    alice, acme = cast.alice, cast.acme
    late = draft(name="first tokens", indicator="ttft", threshold=250_000, target_ppm=950_000)
    for wanted, bad in ((draft(name="good answers"), 1), (late, 14)):
        objective = objective_create(actor=alice, organization=acme.id, draft=wanted)
        for number in range(OBJECTIVE_MINUTES):
            at = datetime.now(UTC) - timedelta(minutes=number)
            total = 100 + number % 7 * 10
            count(objective, at, good=total - bad * (number % 3), total=total)


def _lines(keys: list[ApiKey], first: datetime, now: datetime) -> Iterator[Line]:
    dice = random.Random(11)
    shares = (0.5, 0.35, 0.15)
    for day in range(DAYS_BACK + 1):
        weekday = (first + timedelta(days=day)).weekday() < 5
        for key, share in zip(keys, shares, strict=True):
            for model in PRICES:
                for _ in range(LINES_A_DAY):
                    at = first + timedelta(days=day, seconds=dice.uniform(0, 80_000))
                    if at < now:
                        tokens = int(TOKENS_A_LINE * share * dice.uniform(0.4, 1.3))
                        tokens = tokens if weekday else tokens // 3
                        yield _line(dice, key, model, at, tokens)


def _line(dice: random.Random, key: ApiKey, model: str, at: datetime, tokens: int) -> Line:
    price = PRICES[model]
    cached = int(tokens * dice.uniform(0.3, 0.6))
    counts = TokenCounts(uncached=tokens - cached, cached=cached, output=tokens // 7)
    return Line(
        request=_request_id(dice, at),
        slot=1,
        kind="settle",
        amount=charge_nano(price, counts),
        booked_at=at,
        organization=key.organization_id,
        project=key.project_id,
        key=key.id,
        model=model,
        price=price,
        counts=counts,
        budgets=None,
    )


def _request_id(dice: random.Random, at: datetime) -> uuid.UUID:
    milliseconds = int(at.timestamp() * 1_000)
    value = (milliseconds << 80) | (0x7 << 76) | (0b10 << 62) | dice.getrandbits(61)
    return uuid.UUID(int=value)
