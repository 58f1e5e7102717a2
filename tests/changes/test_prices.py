"""A change of prices: what recorded requests would have cost, put in force, undone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.utils import timezone

from controlplane.catalog.models import Model
from controlplane.catalog.selectors import price_list_all, version_in_force
from controlplane.changes.prices import PriceChanges
from controlplane.changes.pricing import prices_dry_run
from controlplane.changes.versions import FieldDifference
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.ids import public_id
from controlplane.tenants.keys import KeyTerms, apikey_create
from tests.support.people import Cast, make_cast
from tests.support.rules import make_models
from tests.support.traffic import asked, store

# What `make_models` has them cost.
SMALL = {"input_pico": 100_000, "cached_pico": 10_000, "output_pico": 400_000}
DOUBLE = {name: 2 * rate for name, rate in SMALL.items()}
# Of 36 uncached, 64 cached and 50 output tokens, in nano-USD.
COST = (36 * 100_000 + 64 * 10_000 + 50 * 400_000) // 1_000


@pytest.fixture
def cast(database: str) -> Cast:
    make_models("small", "large")
    return make_cast()


@pytest.fixture
def changes(cast: Cast) -> PriceChanges:
    return PriceChanges(cast.stella)


def own(cast: Cast) -> dict[str, str]:
    """Acme's project, as the project whose own price it is."""
    ids = {"project": public_id("proj", cast.project.id)}
    return {**ids, "organization": public_id("org", cast.acme.id)}


def paid(cast: Cast, *, project: bool = False) -> int | None:
    versions = price_list_all(actor=OPERATOR, model=Model.objects.get(name="small"))
    whose = cast.project.id if project else None
    found = version_in_force(versions, project_id=whose, at=timezone.now())
    return found.input_pico if found else None


def test_a_price_is_put_in_force_and_put_back(cast: Cast, changes: PriceChanges) -> None:
    draft = changes.draft_create({"prices": [{"model": "small", **DOUBLE}]})
    assert paid(cast) == 100_000
    (told,) = changes.differences(draft)
    assert told.fields[0] == FieldDifference("input_pico", 100_000, 200_000)
    changes.publish(draft)
    assert paid(cast) == 200_000
    changes.undo(1)
    assert paid(cast) == 100_000


def test_a_projects_own_price_begins_and_ends(cast: Cast, changes: PriceChanges) -> None:
    content = {"prices": [{"model": "small", **own(cast), **DOUBLE}]}
    changes.publish(changes.draft_create(content))
    assert (paid(cast), paid(cast, project=True)) == (100_000, 200_000)
    changes.undo(1)
    assert paid(cast, project=True) is None


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"model": "gone", **SMALL}, "model"),
        ({"model": "small"}, "input_pico"),
        ({"model": "small", "input_pico": 1, "cached_pico": 1}, "input_pico"),
        ({"model": "small", "project": "x"}, "project"),
        ({"model": "small", **SMALL, "cached_pico": 100_001}, "cached_pico"),
        ({"model": "small", **SMALL, "project": "proj_1"}, "project"),
        ({"model": "small", **SMALL, "batch_permille": -1}, "batch_permille"),
    ],
)
def test_errors_name_their_field(
    cast: Cast, changes: PriceChanges, entry: dict[str, Any], field: str
) -> None:
    draft = changes.draft_create({"prices": [entry]})
    for step in (changes.publish, partial(prices_dry_run, changes)):
        with pytest.raises(ValidationError) as caught:
            step(draft)
        assert list(caught.value.message_dict) == [f"content.prices[0].{field}"]


def test_what_only_publishing_finds_is_told_by_field_and_nothing_is_kept(
    cast: Cast, changes: PriceChanges
) -> None:
    prices = [{"model": "small", **DOUBLE}, {"model": "small", **own(cast)}]
    draft = changes.draft_create({"prices": prices})
    with pytest.raises(ValidationError) as caught:
        changes.publish(draft)
    assert list(caught.value.message_dict) == ["content.prices[1].project"]
    assert (paid(cast), changes.in_force()) == (100_000, None)


def test_only_staff_change_prices(cast: Cast) -> None:
    with pytest.raises(PermissionDenied):
        PriceChanges(cast.alice).draft_create({"prices": []})


def test_a_dry_run_prices_recorded_requests_twice(cast: Cast, changes: PriceChanges) -> None:
    store([asked(cast, "small", cost_nano=COST) for _ in range(3)])
    store([asked(cast, "large", cost_nano=10 * COST)])
    # Refused at the time: it cost nothing.
    store([asked(cast, "small", status=429, cost_nano=0)])
    draft = changes.draft_create({"prices": [{"model": "small", **DOUBLE}]})
    found = prices_dry_run(changes, draft, 1)
    total = found.total
    assert (total.requests, total.changed, total.charged_nano) == (5, 3, 13 * COST)
    assert (total.before_nano, total.after_nano) == (13 * COST, 16 * COST)
    assert [(one.name, one.tally.changed) for one in found.models] == [("small", 3), ("large", 0)]
    assert [one.name for one in found.organizations] == ["Acme"]
    assert paid(cast) == 100_000


def test_a_dry_run_knows_own_prices_and_priorities(cast: Cast, changes: PriceChanges) -> None:
    terms = KeyTerms(priority=0)
    key = apikey_create(actor=cast.alice, project=cast.project, label="low", terms=terms).key
    store([asked(cast, "small", cost_nano=COST, key=key.id.hex)])
    other: dict[str, Any] = {
        "organization": cast.other.id.hex,
        "project": cast.other_project.id.hex,
    }
    store([asked(cast, "small", cost_nano=COST, **other)])
    half = {"model": "small", **own(cast), **SMALL, "batch_permille": 500}
    found = prices_dry_run(changes, changes.draft_create({"prices": [half]}), 1)
    assert (found.total.changed, found.total.after_nano) == (1, COST + COST // 2)
    assert [(one.name, one.tally.changed) for one in found.projects] == [
        ("Acme · web", 1),
        ("Other · secret", 0),
    ]
