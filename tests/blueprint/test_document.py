"""A configuration document holds whatever its resources are made of, and resets nothing."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest
import yaml

from controlplane.billing.budgets.services import BudgetDraft
from controlplane.blueprint.configuration import configuration_apply, configuration_export
from controlplane.blueprint.document import (
    BudgetSpec,
    DocumentPart,
    LimitsSpec,
    ModelSpec,
    PoolSpec,
    PriceSpec,
    PurchaseSpec,
)
from controlplane.catalog.models import Pool
from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.selectors import model_find
from controlplane.catalog.services import ModelDraft, PriceDraft, PurchaseDraft, model_change
from controlplane.core.audit.entries import OPERATOR
from controlplane.quotas.services import LimitSet
from tests.support.rules import make_models

OFFICE = {"days": ["mon"], "from": "08:00", "to": "19:00", "nodes_min": 3}
POOL = PoolDraft(
    name="gold", task="embed", role="decode", nodes_min=2, nodes_max=7,
    warm_schedule=[OFFICE], start_command="node --x", card_hour_micro=2_500_000,
    cards_per_node=4, separate_caches=True, plan_mode="signal",
)  # fmt: skip
RATES = {"input_pico": "input", "cached_pico": "cached", "output_pico": "output"}


def apply(text: str) -> list[str]:
    return [change.path for change in configuration_apply(actor=OPERATOR, text=text, dry_run=False)]


def pool_now(name: str = POOL.name) -> dict[str, object]:
    row = Pool.objects.get(name=name)
    return {each.name: getattr(row, each.name) for each in fields(PoolDraft)}


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("said", ["nodes_max: 8", "card_hour_usd: 3", "separate_caches: false"])
def test_every_field_of_a_pool_that_is_not_named_survives(said: str) -> None:
    usual = asdict(PoolDraft(name=""))
    assert [name for name, value in asdict(POOL).items() if value == usual[name]] == []
    pool_set(actor=OPERATOR, draft=POOL)
    name, value = next(iter(yaml.safe_load(said).items()))
    assert apply(f"{{sluice: 1, pools: [{{name: gold, {said}}}]}}") == [f"pools[0].{name}"]
    changed = {"card_hour_micro": 3_000_000} if name == "card_hour_usd" else {name: value}
    assert pool_now() == asdict(POOL) | changed


@pytest.mark.usefixtures("database")
def test_an_export_makes_the_same_pool_elsewhere() -> None:
    pool_set(actor=OPERATOR, draft=POOL)
    exported = configuration_export(actor=OPERATOR)
    gold = next(one for one in yaml.safe_load(exported)["pools"] if one["name"] == "gold")
    assert gold["card_hour_usd"] == "2.50"
    other = exported.replace("name: gold", "name: silver")
    dry = configuration_apply(actor=OPERATOR, text=other)
    assert {change.path.split(".")[0] for change in dry} == {"pools[1]"}
    assert apply(other) and apply(other) == []
    # What a driver runs is the operator's, and no part of a document.
    assert pool_now("silver") == asdict(POOL) | {"name": "silver", "start_command": ""}


@pytest.mark.usefixtures("database")
def test_every_field_of_a_model_that_is_not_named_survives() -> None:
    make_models("small")
    draft = ModelDraft(
        name="small", pool="default", context_window=100, output_tokens_default=3,
        output_tokens_max=7, owner="somebody",
    )  # fmt: skip
    model_change(actor=OPERATOR, draft=draft)
    assert apply("{sluice: 1, models: [{name: small, output_tokens_max: 8}]}")
    found = model_find(name="small")
    assert {name: getattr(found, name) for name in asdict(draft)} == asdict(draft) | {
        "output_tokens_max": 8
    }


@pytest.mark.parametrize(
    ("spec", "draft", "other"),
    [
        (PoolSpec, PoolDraft, {"card_hour_micro": "card_hour_usd", "start_command": None}),
        (ModelSpec, ModelDraft, {}),
        (PriceSpec, PriceDraft, RATES),
        (PurchaseSpec, PurchaseDraft, RATES),
        (BudgetSpec, BudgetDraft, {"allowance_nano": "usd"}),
        (LimitsSpec, LimitSet, {}),
    ],
)
def test_nothing_of_a_draft_is_missing_in_the_document(
    spec: type[DocumentPart], draft: type, other: dict[str, str | None]
) -> None:
    wanted = {other.get(name, name) for name in draft.__annotations__} - {None}
    assert wanted - set(spec.__struct_fields__) == set()
