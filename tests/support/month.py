"""One month of money that every test of finance shares: October 2025, of two organizations.

`month = seed_month(make_cast())` books it straight into the ledger, with the clock set: about 700
lines of 370 requests, by four keys, three projects and two models, of which one changes its price
in mid-month. There are overages, late charges, expiries, releases, requests without a limit (no
hold), and lines at the first and at the last microsecond. Before and after it one request each is
booked in September and in November, so that a wrong border shows. Everything but the ids of people,
projects and keys is the same at every run.

The journal has credits, adjustments, a payment and reversals, one of them of September's request.

Seed before anything else is booked, then `seal_month()`: seals only ever grow towards the present.
`month.charged(organization)` is what requests cost, `month.corrected(...)` what entries change of
it, `month.owed(...)` both; `month.sums(...)` splits the first by anything a line says.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple, TypeVar

import psycopg

from controlplane.billing.ledger.services import seal_ledger
from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.selectors import pool_find
from controlplane.catalog.services import ModelDraft, model_create
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.price import Price, TokenCounts, charge_nano, hold_nano
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import ApiKey, Project
from controlplane.tenants.services import project_create
from tests.support.money import rows, superuser_dsn
from tests.support.month_entries import CHARGING, Entry, book_entries, entries_of_month
from tests.support.people import Cast

PERIOD = "2025-10"
START = datetime(2025, 10, 1, tzinfo=UTC)
END = datetime(2025, 11, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SEED = 20_251_001
REQUESTS_PER_DAY = 12
LIMIT_NANO = 1_000_000_000_000
POSTING = ("settle", "overage", "late")
ALPHA, BETA = "alpha-7b", "beta/chat"
# Odd rates, so that lines are rounded; alpha becomes dearer on the sixteenth.
ALPHA_PRICES = (
    Price(version=1, input_pico=37_500, cached_pico=7_501, output_pico=299_999),
    Price(version=2, input_pico=41_250, cached_pico=8_333, output_pico=333_333),
)
DEARER = datetime(2025, 10, 16, tzinfo=UTC)
BETA_PRICE = Price(version=5, input_pico=2_500_000, cached_pico=250_000, output_pico=10_000_000)
# Names that a spreadsheet would take for formulas, or that need quotes in a CSV file.
PROJECT_NAME = '-2+3, "ünï" text'
KEY_NAME = "=cmd|' /C calc'!A0"

Key = TypeVar("Key", bound=Hashable)


class Line(NamedTuple):
    """One transfer as it was booked; columns in the order of `INSERT_LINE`."""

    request: uuid.UUID
    slot: int
    kind: str
    amount: int
    booked_at: datetime
    organization: uuid.UUID
    project: uuid.UUID
    key: uuid.UUID
    model: str
    price: Price
    counts: TokenCounts
    budgets: list[uuid.UUID] | None

    @property
    def posts(self) -> bool:
        """Whether it charges."""
        return self.kind in POSTING

    @property
    def row(self) -> tuple[object, ...]:
        """As SQL takes it."""
        price, counts = self.price, self.counts
        return (
            *(self.request, self.slot, self.kind, self.amount, self.booked_at, self.organization),
            *(self.project, self.key, self.model, price.version, price.input_pico),
            *(price.cached_pico, price.output_pico, counts.uncached, counts.cached, counts.output),
            *(self.budgets, f"receivable:{self.organization}", f"revenue:{self.model}"),
            "" if self.kind in ("hold", "expire") else "gateway",
        )


INSERT_LINE = """
    INSERT INTO transfers (request, slot, kind, amount, booked_at, organization, project, key,
                           model, price_version, input_pico, cached_pico, output_pico, uncached,
                           cached, output, budgets, debit, credit, source)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
NOTHING = TokenCounts(uncached=0, cached=0, output=0)


@dataclass(frozen=True)
class Payer:
    """A key and what its requests count on."""

    key: ApiKey
    project: Project
    budgets: list[uuid.UUID] | None


@dataclass(frozen=True)
class Month:
    """What was booked. Acme pays within a budget; Other has none, so its requests hold nothing."""

    cast: Cast
    payers: list[Payer]
    lines: list[Line]
    entries: list[Entry]

    def posted(self, organization: uuid.UUID) -> list[Line]:
        """The lines that charge this organization in October, in the order of their booking."""
        found = [
            line
            for line in self.lines
            if line.posts and line.organization == organization and START <= line.booked_at < END
        ]
        return sorted(found, key=lambda line: (line.booked_at, line.request, line.slot))

    def charged(self, organization: uuid.UUID) -> int:
        """Nano-USD of requests in October."""
        return sum(line.amount for line in self.posted(organization))

    def sums(self, organization: uuid.UUID, by: Callable[[Line], Key]) -> dict[Key, int]:
        """Nano-USD of requests in October, by what `by` says of a line."""
        totals: Counter[Key] = Counter()
        for line in self.posted(organization):
            totals[by(line)] += line.amount
        return dict(totals)

    def corrections(self, organization: uuid.UUID) -> list[Entry]:
        """The entries of October that change what this organization owes."""
        return [
            entry
            for entry in self.entries
            if entry.organization == organization
            and entry.kind in CHARGING
            and START <= entry.booked_at < END
        ]

    def corrected(self, organization: uuid.UUID) -> int:
        """Nano-USD that those entries add; below zero where they give."""
        return sum(entry.owed for entry in self.corrections(organization))

    def owed(self, organization: uuid.UUID) -> int:
        """Nano-USD of requests and corrections in October, before payments."""
        return self.charged(organization) + self.corrected(organization)


def seed_month(cast: Cast) -> Month:
    """Book the month; needs a fresh `database` with nothing on the ledger."""
    _make_models()
    payers = _make_payers(cast)
    lines = _Writer(payers).write()
    rows("SELECT ledger_make_partitions(%s, %s)", (START - timedelta(days=2)).date(), END.date())
    with psycopg.connect(superuser_dsn()) as connection, connection.cursor() as cursor:
        cursor.executemany(INSERT_LINE, [line.row for line in lines])
    entries = entries_of_month(cast.acme.id, cast.other.id, lines)
    book_entries(entries)
    acme = cast.acme.id
    posted = sum(line.amount for line in lines if line.posts and line.organization == acme)
    rows(
        "INSERT INTO budgets (id, organization, scope, lim, posted)"
        " VALUES (%s, %s, 'organization', %s, %s)",
        acme,
        acme,
        # What is reversed makes room again.
        LIMIT_NANO + sum(entry.amount for entry in entries if entry.kind == "reversal"),
        posted,
    )
    return Month(cast, payers, lines, entries)


def seal_month() -> None:
    """Seal all that was seeded."""
    while seal_ledger():
        continue


def _make_models() -> None:
    if pool_find(name="default") is None:
        pool_set(actor=OPERATOR, draft=PoolDraft(name="default"))
    for name in (ALPHA, BETA):
        draft = ModelDraft(
            name=name,
            pool="default",
            context_window=1_000_000,
            output_tokens_default=256,
            output_tokens_max=60_000,
        )
        model_create(actor=OPERATOR, draft=draft)


def _make_payers(cast: Cast) -> list[Payer]:
    second = project_create(actor=cast.alice, organization=cast.acme, name=PROJECT_NAME)
    wanted = (
        (cast.project, "nightly summaries", [cast.acme.id]),
        (cast.project, KEY_NAME, [cast.acme.id]),
        (second, "@search agents", [cast.acme.id]),
        (cast.other_project, "secret service", None),
    )
    return [
        Payer(apikey_create(actor=OPERATOR, project=project, label=label).key, project, budgets)
        for project, label, budgets in wanted
    ]


class _Writer:
    """Makes the lines; one generator of random numbers, so every run makes the same."""

    def __init__(self, payers: list[Payer]) -> None:
        self._payers = payers
        self._random = Random(SEED)
        self._lines: list[Line] = []

    def write(self) -> list[Line]:
        """All lines, September's and November's included."""
        acme, *_, other = self._payers
        for payer in (acme, other):
            self._request(payer, START - 2 * MICROSECOND, "settle", end=START - MICROSECOND)
            self._request(payer, START - MICROSECOND, "settle", end=START)
        number = 0
        for day in range((END - START).days):
            for _ in range(REQUESTS_PER_DAY):
                payer = self._payers[self._random.choice((0, 0, 1, 2, 3, 3))]
                second = self._random.randrange(120, 86_000)
                at = START + timedelta(days=day, seconds=second, microseconds=number)
                self._request(payer, at, self._course(number, payer))
                number += 1
        for payer in (acme, other):
            self._request(payer, END - 2 * MICROSECOND, "settle", end=END - MICROSECOND)
            self._request(payer, END - MICROSECOND, "settle", end=END)
        return self._lines

    @staticmethod
    def _course(number: int, payer: Payer) -> str:
        if payer.budgets is None:
            return "settle"
        return {7: "overage", 11: "late", 13: "expire", 17: "release"}.get(number % 19, "settle")

    def _request(
        self, payer: Payer, at: datetime, course: str, *, end: datetime | None = None
    ) -> None:
        """Append one request's lines; it begins at `at` and is resolved at `end`."""
        end = end or at + timedelta(milliseconds=self._random.randrange(40, 90_000))
        random = self._random
        model = ALPHA if random.random() < 0.7 else BETA
        price = BETA_PRICE if model == BETA else ALPHA_PRICES[at >= DEARER]
        prompt = random.randrange(1, 400_000)
        cached = random.randrange(0, prompt) if random.random() < 0.6 else 0
        output = 0 if course == "overage" else random.randrange(1, 60_000)
        counts = TokenCounts(uncached=prompt - cached, cached=cached, output=output)
        amount = charge_nano(price, counts)
        held = amount // 2 + 1 if course == "overage" else hold_nano(price, prompt, 60_000)
        request = self._request_id(at)

        def book(slot: int, kind: str, nano: int, when: datetime, tokens: TokenCounts) -> None:
            budgets = payer.budgets if slot == 0 else None
            organization = payer.key.organization_id
            self._lines.append(
                Line(
                    *(request, slot, kind, nano, when, organization, payer.project.id),
                    *(payer.key.id, model, price, tokens, budgets),
                )
            )

        if payer.budgets is not None:
            book(0, "hold", held, at, NOTHING)
        if course == "settle":
            book(1, "settle", amount, end, counts)
        elif course == "overage":
            book(1, "settle", held, end, counts)
            book(2, "overage", amount - held, end, NOTHING)
        elif course == "release":
            book(1, "release", held, end, NOTHING)
        else:
            book(1, "expire", held, end, NOTHING)
            if course == "late":
                book(2, "late", amount, end + timedelta(minutes=20), counts)

    def _request_id(self, at: datetime) -> uuid.UUID:
        """A UUIDv7 of that moment."""
        random = self._random.getrandbits(74)
        low = (1 << 63) | (random & (2**62 - 1))
        return uuid.UUID(
            int=int(at.timestamp() * 1_000) << 80 | (0x7000 | random >> 62) << 64 | low
        )
