"""A dry run tells who and what would change, at what price, and what it cannot know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, ValidationError

from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from controlplane.routing.dryrun import FirstPlace
from controlplane.routing.selectors import DryRunJson, rule_problems, rules_of, ruleset_dry_run
from controlplane.routing.services import RuleVersions
from controlplane.routing.traffic import read_sample
from controlplane.telemetry import selectors_traffic
from controlplane.tenants.keys import KeyTerms, apikey_create
from tests.support.money import rows
from tests.support.people import Cast, make_cast
from tests.support.rules import generates, make_models, publish, serve
from tests.support.traffic import asked, routed, store

SMALL, LARGE = FirstPlace("small", "default"), FirstPlace("large", "default")
SMALL_PRICE = Price(version=1, input_pico=100_000, cached_pico=10_000, output_pico=400_000)
LARGE_PRICE = Price(version=1, input_pico=1_000_000, cached_pico=100_000, output_pico=4_000_000)


@pytest.fixture
def cast(database: str) -> Cast:
    """People, and two models of which the second is ten times as dear."""
    make_models("small", "large")
    return make_cast()


def dry_run(*rules: dict[str, Any], hours: int = 1) -> DryRunJson:
    draft = RuleVersions(OPERATOR).draft_create(list(rules))
    return ruleset_dry_run(actor=OPERATOR, rule_set=draft, hours=hours)


def unserved(*rules: dict[str, Any]) -> list[tuple[FirstPlace, int]]:
    found = dry_run(*rules).unserved
    return [(FirstPlace(one.model, one.pool), one.requests) for one in found]


def test_without_traffic_nothing_would_change(cast: Cast) -> None:
    found = dry_run(generates("all", "large"))
    assert (found.sample.requests, found.sample.complete, found.against) == (0, True, None)


def test_who_and_what_would_move_and_what_it_would_cost(cast: Cast) -> None:
    other, secret = cast.other.id.hex, cast.other_project.id.hex
    store([asked(cast, "small", region="north") for _ in range(3)])
    store([asked(cast, "large"), asked(cast, "small", organization=other, project=secret)])
    found = dry_run(generates("up", "large", organizations=[cast.acme.id.hex]))
    total = found.total
    assert (total.requests, total.moved, total.treated, total.cached_lost) == (5, 3, 0, 3 * 64)
    tally = found.moves[0]
    assert (tally.before, tally.after, tally.moved) == (SMALL, LARGE, 3)
    counts = TokenCounts(uncached=36, cached=64, output=50)
    cold = TokenCounts(uncached=100, cached=0, output=50)
    assert tally.before_nano == 3 * charge_nano(SMALL_PRICE, counts)
    assert tally.after_nano == 3 * charge_nano(LARGE_PRICE, counts)
    assert tally.cold_nano == 3 * charge_nano(LARGE_PRICE, cold)
    assert [(one.name, one.requests, one.moved) for one in found.organizations] == [
        ("Acme", 4, 3),
        ("Other", 1, 0),
    ]
    assert [(one.name, one.moved) for one in found.projects] == [
        ("Acme · web", 3),
        ("Other · secret", 0),
    ]
    assert [(one.id, one.moved) for one in found.regions] == [("north", 3), ("local", 0)]
    assert found.leave_region == 3
    assert [(use.name, use.before, use.after) for use in found.rules] == [
        ("up", 0, 4),
        ("direct", 5, 1),
    ]


def test_requests_that_a_rule_decided_are_judged_by_what_they_asked_for(cast: Cast) -> None:
    publish(generates("up", "large", aliases=["chat"]))
    store([routed(cast, "chat", "up@1", model="large") for _ in range(2)])
    store([routed(cast, "chat", "up@0", model="large", receipt=b"{}")])
    found = dry_run(generates("down", "small", aliases=["chat"]))
    assert found.against == 1
    assert (found.moves[0].before, found.moves[0].after) == (LARGE, SMALL)
    assert (found.total.moved, found.sample.alias_unknown) == (2, 1)


def test_the_same_rules_change_nothing_whatever_their_name(cast: Cast) -> None:
    publish(generates("a", "large", aliases=["small"]), generates("b", "small"))
    store([asked(cast, "small"), asked(cast, "large")])
    found = dry_run(generates("c", "large", aliases=["small"]), generates("d", "small"))
    assert (found.total.moved, found.total.treated) == (0, 0)
    found = dry_run(
        generates("c", "large", aliases=["small"]),
        generates(
            "d",
            "small",
        )
        | {"deadline_s": 5},
    )
    assert (found.total.moved, found.total.treated) == (0, 1)


def test_weights_meet_each_request_as_they_would_have(cast: Cast) -> None:
    targets = [{"model": "large", "weight": 1}, {"model": "small", "weight": 3}]
    store([asked(cast, "small", draw=place / 8) for place in range(8)])
    found = dry_run(generates("split", "small") | {"steps": [{"targets": targets}]})
    assert found.total.moved == 2


def test_tags_priority_and_size_of_a_request_are_seen(cast: Cast) -> None:
    terms = KeyTerms(tags=["nightly"], priority=0)
    key = apikey_create(actor=cast.alice, project=cast.project, label="n", terms=terms).key
    store([asked(cast, "small", key=key.id.hex), asked(cast, "small")])
    store([asked(cast, "small", prompt_tokens=8_000), asked(cast, "small", prompt_tokens=7_999)])
    assert dry_run(generates("n", "large", tags=["nightly"])).total.moved == 1
    assert dry_run(generates("n", "large", priorities=[0])).total.moved == 1
    assert dry_run(generates("n", "large", prompt_tokens_min=8_000)).total.moved == 1
    assert dry_run(generates("n", "large", prompt_tokens_max=7_999)).total.moved == 3


def test_what_cannot_be_judged_is_counted(cast: Cast) -> None:
    store([asked(cast, "small", prompt_tokens=0, cached_tokens=0, output_tokens=0, status=429)])
    store([asked(cast, "gone")])
    found = dry_run(generates("all", "large"))
    assert (found.sample.sizes_unknown, found.sample.unpriced) == (1, 1)
    assert found.total.before_nano == 0
    assert any("Tags" in note for note in found.notes)


def test_a_sample_is_the_newest_rows_in_pages(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors_traffic, "PAGE_ROWS_MAX", 3)
    monkeypatch.setattr("controlplane.routing.traffic.PAGE_ROWS_MAX", 3)
    store([asked(cast, "small") for _ in range(8)])
    newest = [one for (one,) in rows("SELECT request FROM request_records ORDER BY 1 DESC")]
    now = datetime.now(UTC) + timedelta(seconds=1)
    hour, scope = now - timedelta(hours=1), [cast.acme.id]
    whole = read_sample(scope, hour, now)
    assert whole.complete and [row.request for row in whole.rows] == newest
    some = read_sample(scope, hour, now, rows_max=5)
    assert not some.complete and [row.request for row in some.rows] == newest[:5]
    late = read_sample(scope, hour, now, seconds_max=0)
    assert not late.complete and late.rows == []
    assert read_sample([cast.other.id], hour, now).rows == []


def test_organizations_beyond_the_bound_are_not_passed_over_in_silence(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tenants.selectors", "routing.traffic"):
        monkeypatch.setattr(f"controlplane.{name}.ORGANIZATIONS_MAX", 1)
    other, secret = cast.other.id.hex, cast.other_project.id.hex
    store([asked(cast, "small"), asked(cast, "small", organization=other, project=secret)])
    found = dry_run(generates("all", "large", projects=[secret, cast.project.id.hex]))
    assert (found.sample.requests, found.sample.complete) == (1, False)
    draft = RuleVersions(OPERATOR).draft_create(
        [generates("all", "large", projects=[secret], organizations=[other])]
    )
    serve("large")
    assert rule_problems(actor=OPERATOR, rules=rules_of(draft)) == []


def test_only_staff_and_only_so_far_back(cast: Cast) -> None:
    draft = RuleVersions(OPERATOR).draft_create([])
    with pytest.raises(PermissionDenied):
        ruleset_dry_run(actor=cast.alice, rule_set=draft)
    for hours in (0, 169):
        with pytest.raises(ValidationError) as caught:
            ruleset_dry_run(actor=cast.stella, rule_set=draft, hours=hours)
        assert list(caught.value.message_dict) == ["hours"]


def test_requests_that_would_go_where_nothing_serves_are_counted_by_place(cast: Cast) -> None:
    serve("small")
    store([asked(cast, "small") for _ in range(3)] + [asked(cast, "large")])
    assert unserved() == [(LARGE, 1)]
    assert unserved(generates("up", "large")) == [(LARGE, 4)]
    assert unserved(generates("down", "small")) == []
