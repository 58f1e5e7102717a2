"""What size classes did: choices by tenant, retries, shadows, and savings at list prices."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.core.exceptions import PermissionDenied

from controlplane.catalog.selectors import price_in_force
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from controlplane.kernel.receipt import Receipt, SizeChoice
from controlplane.routing import sizing
from controlplane.routing.checks import find_problems
from controlplane.routing.rulesjson import read_rules
from controlplane.routing.selectors import rules_now, ruleset_dry_run
from controlplane.routing.services import RuleVersions
from controlplane.routing.sizing import SizesJson, size_report
from frontend.requests.receipt import size_words
from frontend.routing.rows import rule_rows
from frontend.routing.sizes import size_panel
from tests.routing.test_checks import NAMES
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import generates, make_models, publish
from tests.support.traffic import routed, store

COUNTS = TokenCounts(uncached=36, cached=64, output=50)
COSTS = [
    charge_nano(Price(version=1, input_pico=p, cached_pico=p // 10, output_pico=4 * p), COUNTS)
    for p in (100_000, 1_000_000)
]
STEP = {
    "targets": [
        {"model": "small", "size_class": "small"},
        {"model": "large", "size_class": "large"},
    ]
}
AUTO = generates("auto", "small", aliases=["auto"]) | {"steps": [STEP]}
CHOSEN = SizeChoice(chosen="small", served="small", us=40.0, model="small", largest="large")


@pytest.fixture
def cast(database: str) -> Cast:
    """People, and two models of which the second is ten times as dear."""
    make_models("small", "large")
    return make_cast()


def sized(cast: Cast, model: str, /, label: str = "auto@1", **choice: Any) -> Any:
    made = msgspec.structs.replace(CHOSEN, **choice)
    receipt = msgspec.json.encode(Receipt(rule=label, asked="auto", size=made))
    return routed(cast, "auto", label, model=model, receipt=receipt)


def report() -> SizesJson:
    found = size_report(actor=OPERATOR, rules=rules_now())
    assert found is not None
    return found


def test_rules_without_classes_have_nothing_to_report(cast: Cast) -> None:
    publish(generates("all", "small"))
    assert size_report(actor=OPERATOR, rules=rules_now()) is None
    with pytest.raises(PermissionDenied):
        size_report(actor=cast.alice, rules=rules_now())


def test_choices_are_counted_by_tenant_and_saved_money_by_list_prices(cast: Cast) -> None:
    publish(AUTO)
    other = {"organization": cast.other.id.hex, "project": cast.other_project.id.hex}
    theirs = msgspec.structs.replace(sized(cast, "small"), **other)
    mine = [
        sized(cast, "small"),
        sized(cast, "large", served="large", by="retry", us=90.0),
        sized(cast, "large", chosen="large", served="large", model="large"),
        sized(cast, "large", served="large", by="shadow"),
        sized(cast, "large", served="large", by="thumbs_down"),
    ]
    store([theirs, *mine, routed(cast, "b", "b@1"), sized(cast, "small", label="automatic@1")])
    found, saved = report(), COSTS[1] - COSTS[0]
    total = found.total
    assert (total.requests, total.retries, total.shadow, total.unpriced) == (6, 1, 1, 0)
    assert total.thumbs_down == 1
    assert total.chosen == {"small": 5, "medium": 0, "large": 1}
    assert total.served == {"small": 2, "medium": 0, "large": 4}
    assert total.largest_nano - total.cost_nano == 2 * saved
    assert total.largest_nano - total.chosen_nano == 5 * saved
    assert [(one.name, one.requests) for one in found.organizations] == [
        ("Acme", 5),
        ("Other", 1),
    ]
    assert found.complete
    assert found.us[0] == pytest.approx(40, rel=0.03)
    assert found.us[2] == pytest.approx(90, rel=0.03)


def test_what_has_no_price_is_counted_and_priced_as_nothing(cast: Cast) -> None:
    publish(AUTO)
    store([sized(cast, "small", largest="gone")])
    total = report().total
    assert (total.requests, total.unpriced, total.cost_nano) == (1, 1, 0)


def test_prices_are_read_of_models_in_the_sample_alone(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[str] = set()

    def counted(*, model: Any, at: Any) -> Any:
        asked.add(model.name)
        return price_in_force(model=model, at=at)

    monkeypatch.setattr(sizing, "price_in_force", counted)
    publish(AUTO)
    assert report().total.requests == 0 and not asked
    store([sized(cast, "small")])
    assert report().total.unpriced == 0 and asked == {"small", "large"}


def test_only_the_newest_requests_are_read(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "ROWS_MAX", 1)
    publish(AUTO)
    store([sized(cast, "small"), sized(cast, "small")])
    found = report()
    assert (found.total.requests, found.complete) == (1, False)
    assert size_panel(found).note == "the newest requests of the last 24 hours"


def test_the_page_shows_choices_and_savings(cast: Cast) -> None:
    client = signed_in(cast.stella)
    publish(generates("all", "small"))
    assert b"Size classes" not in client.get("/routing").content
    publish(AUTO)
    empty = client.get("/routing").content.decode()
    assert "Size classes" in empty
    store([sized(cast, "small", label="auto@2"), sized(cast, "large", label="auto@2", by="shadow")])
    page = client.get("/routing").content.decode()
    assert "The choices would have saved" in page
    panel = size_panel(report())
    assert dict(panel.facts)["Moved up by a retry"] == "0 %"
    assert panel.rows[0].classes == ["2 / 2", "0 / 0", "0 / 0"]


def test_a_dry_run_takes_the_recorded_choices_and_the_large_one_for_others(cast: Cast) -> None:
    publish(AUTO)
    store([sized(cast, "small"), sized(cast, "large", served="large", by="shadow")])
    store([routed(cast, "auto", "auto@1", model="large")])
    shadow = RuleVersions(OPERATOR).draft_create([AUTO | {"shadow_class": "large"}])
    total = ruleset_dry_run(actor=OPERATOR, rule_set=shadow, hours=1).total
    assert (total.requests, total.moved, total.treated) == (3, 2, 1)


def test_rules_with_classes_are_checked_and_told_in_words() -> None:
    def found(rule: dict[str, Any]) -> list[tuple[str, bool]]:
        return [(one.field, one.warning) for one in find_problems(read_rules([rule]), NAMES)]

    assert found(AUTO) == [("rules[0].steps[0].targets", True)]
    middle = {"model": "small", "pool": "big", "size_class": "medium"}
    whole = AUTO | {"steps": [{"targets": [*STEP["targets"], middle]}]}
    assert found(whole) == []
    same = AUTO | {"steps": [{"targets": [*STEP["targets"], {**middle, "pool": None}]}]}
    assert found(same) == []
    plain = generates("a", "small") | {"shadow_class": "small"}
    assert found(plain) == [("rules[0].shadow_class", False)]
    embeds = {"model": "vector", "size_class": "small"}
    wrong = {"name": "e", "match": {"tasks": ["embed"]}, "steps": [{"targets": [embeds]}]}
    assert ("rules[0].steps[0].targets[0].size_class", False) in found(wrong)
    (row,) = rule_rows(read_rules([AUTO | {"shadow_class": "large"}]), {})
    assert row.steps[0] == "small: small or large: large, waits up to 30 s"
    assert row.more == ["shadow always large; the choice is recorded"]


def test_a_choice_is_told_in_a_line() -> None:
    why = ("code block", "3 tools", "2,100 tokens")
    choice = SizeChoice(chosen="large", served="large", probability=0.914, why=why)
    assert size_words(choice) == "code block, 3 tools, 2,100 tokens: large, p=0.91"
    shadowed = msgspec.structs.replace(choice, served="small", by="shadow", why=())
    assert size_words(shadowed) == (
        "no feature stands out: large, p=0.91; small served, since the rule is in shadow"
    )
    assert size_words(None) == ""
