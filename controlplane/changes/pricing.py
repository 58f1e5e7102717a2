"""What recorded requests would have cost by other prices: both sets by the gateway's function."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from controlplane.catalog.models import PriceVersion
from controlplane.catalog.selectors import model_list, price_list_all, version_in_force
from controlplane.changes.content import PriceEntry, PricesContent
from controlplane.changes.models import ChangeVersion
from controlplane.changes.prices import FIELDS, PriceChanges, changed_prices
from controlplane.kernel.price import Price, PriceTerms, TokenCounts, charge_nano
from controlplane.routing.tallies import TrafficTally, groups_of, most_changed
from controlplane.routing.traffic import (
    HOURS_DEFAULT,
    UNKNOWN_KEY,
    hours_back,
    read_everyone,
)
from controlplane.telemetry.selectors_traffic import TrafficRow
from controlplane.tenants.selectors import key_facts, project_names

NOTES = (
    "Costs are of the recorded tokens; other prices may change what clients send.",
    "The priority of a request is that which its key has now.",
    "Requests of models that have no price, or are gone, are left out.",
)


@dataclass
class CostTally(TrafficTally):
    """What requests cost, in nano-USD; `charged_nano` is what was charged at the time."""

    changed: int = 0
    charged_nano: int = 0
    before_nano: int = 0
    after_nano: int = 0

    @property
    def change(self) -> tuple[int, ...]:
        return (abs(self.after_nano - self.before_nano),)


class CostGroup(msgspec.Struct, frozen=True):
    """Requests of one organization, project or model, by name."""

    id: str
    name: str
    tally: CostTally


class PricesDryRun(msgspec.Struct, frozen=True):
    """Present prices and the draft's over [`start`, `end`), whole only if `complete`."""

    version: int
    start: datetime
    end: datetime
    complete: bool
    total: CostTally
    organizations: list[CostGroup]
    projects: list[CostGroup]
    models: list[CostGroup]
    unpriced: int
    notes: tuple[str, ...] = NOTES


class PriceBook:
    """What each project pays for each model, now and by a change."""

    def __init__(self, changes: PriceChanges, content: PricesContent, at: datetime) -> None:
        self._changed, self._at = changed_prices(content), at
        self._versions = {
            model.name: price_list_all(actor=changes.actor, model=model) for model in model_list()
        }
        self._known: dict[tuple[str, uuid.UUID], tuple[PriceTerms, PriceTerms] | None] = {}

    def terms(self, model: str, project: uuid.UUID) -> tuple[PriceTerms, PriceTerms] | None:
        """Both, None where there is no price."""
        if (model, project) not in self._known:
            self._known[model, project] = self._terms(model, project)
        return self._known[model, project]

    def _terms(self, model: str, project: uuid.UUID) -> tuple[PriceTerms, PriceTerms] | None:
        versions = self._versions.get(model, [])
        found = {
            whose: version_in_force(versions, project_id=whose, at=self._at)
            for whose in (project, None)
        }
        listed, own = self._changed.get((model, None)), self._changed.get((model, project))
        before = found[project] or found[None]
        kept = None if own and own.input_pico is None else own or found[project]
        after = kept or listed or found[None]
        return (_terms_of(before), _terms_of(after)) if before and after else None


def prices_dry_run(
    changes: PriceChanges, version: ChangeVersion, hours: int = HOURS_DEFAULT
) -> PricesDryRun:
    """Price the newest requests of so many hours; raises ValidationError and TooMuchToRead."""
    now, span = datetime.now(UTC), hours_back(hours)
    content = changes.checked(version)
    with changes.seen():
        book = PriceBook(changes, content, now)
    tenants, sample = read_everyone(changes.actor, now - span, now)
    keys = key_facts(
        actor=changes.actor, organizations=tenants, ids={row.key for row in sample.rows}
    )
    total, unpriced = CostTally(), 0
    by: tuple[dict[Any, CostTally], ...] = ({}, {}, {})
    for row in sample.rows:
        one = _priced(row, book, keys.get(row.key, UNKNOWN_KEY).priority)
        if one is None:
            unpriced += 1
            continue
        total.add(one)
        for tallies, name in zip(by, (row.organization, row.project, row.model), strict=True):
            tallies.setdefault(name, CostTally()).add(one)
    names = project_names(actor=changes.actor, ids=most_changed(by[1]))
    return PricesDryRun(
        version=version.version,
        start=sample.begins,
        end=sample.end,
        complete=sample.complete,
        total=total,
        organizations=groups_of(CostGroup, by[0], tenants, "org"),
        projects=groups_of(CostGroup, by[1], names, "proj"),
        models=groups_of(CostGroup, by[2], {}),
        unpriced=unpriced,
    )


def _priced(row: TrafficRow, book: PriceBook, priority: int) -> CostTally | None:
    terms = book.terms(row.model, row.project)
    if terms is None:
        return None
    counts = TokenCounts.from_usage(row.prompt_tokens, row.cached_tokens, row.output_tokens)
    before, after = (charge_nano(each.at(priority), counts) for each in terms)
    # What was not charged at the time, such as a refused request, would not be now.
    if not row.cost_nano:
        before = after = 0
    return CostTally(1, int(before != after), row.cost_nano, before, after)


def _terms_of(row: PriceVersion | PriceEntry) -> PriceTerms:
    rates = {name: getattr(row, name) or 0 for name in FIELDS}
    price = Price(
        version=0,
        input_pico=rates["input_pico"],
        cached_pico=rates["cached_pico"],
        output_pico=rates["output_pico"],
    )
    return PriceTerms(price=price, **{name: rates[name] for name in FIELDS[3:]})
