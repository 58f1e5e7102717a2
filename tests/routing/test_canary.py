"""A canary is compared by lot, honestly: too few is said, chance is no difference, harm is seen."""

from __future__ import annotations

import random
from math import comb

import pytest
from django.core.exceptions import PermissionDenied

from controlplane.celery import app
from controlplane.core.audit.entries import OPERATOR
from controlplane.routing import tasks
from controlplane.routing.canary import (
    REQUESTS_MIN,
    Arm,
    CanaryComparison,
    CanaryVerdict,
    chance,
    judge,
)
from controlplane.routing.models import RuleSet
from controlplane.routing.selectors import canary_report, ruleset_on_trial
from controlplane.routing.services import RuleVersions, ruleset_canary_watch
from tests.support.money import rows
from tests.support.people import Cast, make_cast
from tests.support.rules import generates, make_models, publish
from tests.support.traffic import asked, routed, store

SHARE = 250


def arm(
    requests: int, *, errors: int = 0, ttft_us: int = 100_000, cost: int = 1_000, seed: int = 1
) -> Arm:
    dice = random.Random(seed)
    served = requests - errors

    def around(value: int) -> list[int]:
        return [max(1, int(value * dice.lognormvariate(0, 0.4))) for _ in range(served)]

    return Arm(requests, errors, around(ttft_us), around(cost), around(100))


def verdicts(comparison: CanaryComparison) -> dict[str, CanaryVerdict]:
    return {each.figure: each.verdict for each in comparison.findings}


def test_the_chance_is_the_binomial_one() -> None:
    exact = sum(comb(20, k) * 0.3**k * 0.7 ** (20 - k) for k in range(9, 21))
    assert chance(20, 9, 0.3) == pytest.approx(exact)
    assert chance(20, 0, 0.3) == 1.0


def test_too_few_requests_say_nothing() -> None:
    found = judge(arm(1_000), arm(REQUESTS_MIN - 1, errors=50))
    assert found.verdict == CanaryVerdict.EARLY
    assert verdicts(found)["errors"] == CanaryVerdict.EARLY


@pytest.mark.parametrize("seed", range(2, 22))
def test_chance_alone_is_no_difference(seed: int) -> None:
    found = judge(arm(2_000, errors=20), arm(300, errors=3, seed=seed))
    assert found.verdict == CanaryVerdict.SAME
    assert found.reasons == ()


def test_more_errors_are_worse_even_when_all_else_is_better() -> None:
    found = judge(arm(2_000, errors=10), arm(300, errors=20, ttft_us=50_000, seed=2))
    assert found.verdict == CanaryVerdict.WORSE
    assert verdicts(found)["errors"] == CanaryVerdict.WORSE
    assert verdicts(found)["ttft_p50"] == CanaryVerdict.BETTER
    assert "errors: worse" in found.reasons


def test_a_faster_first_token_and_a_lower_price_are_better() -> None:
    found = judge(arm(2_000), arm(300, ttft_us=60_000, cost=500, seed=2))
    assert found.verdict == CanaryVerdict.BETTER
    assert verdicts(found) == {
        "errors": CanaryVerdict.SAME,
        "ttft_p50": CanaryVerdict.BETTER,
        "ttft_p95": CanaryVerdict.BETTER,
        "cost": CanaryVerdict.BETTER,
        "output_tokens": CanaryVerdict.SAME,
    }


def test_longer_answers_are_told_without_a_judgement() -> None:
    longer = arm(300, seed=2)
    longer.output_tokens = [2 * value for value in longer.output_tokens]
    found = judge(arm(2_000), longer)
    assert (found.verdict, verdicts(found)["output_tokens"]) == (
        CanaryVerdict.SAME,
        CanaryVerdict.OTHER,
    )
    assert found.reasons == ("output_tokens: other",)


def test_what_has_no_first_token_is_not_waited_for() -> None:
    control, trial = arm(500), arm(300, seed=2)
    control.ttft_us, trial.ttft_us = [], []
    assert judge(control, trial).verdict == CanaryVerdict.SAME


@pytest.fixture
def cast(database: str) -> Cast:
    """People, two models, version 1 in force for `chat`."""
    make_models("small", "large")
    publish(generates("chat", "small", aliases=["chat"]))
    return make_cast()


def start_canary(stops_itself: bool = False) -> RuleSet:
    rules = [generates("chat", "large", aliases=["chat"])]
    draft = RuleVersions(OPERATOR).draft_create(rules)
    RuleVersions(OPERATOR).canary_start(draft, share_permille=SHARE, stops_itself=stops_itself)
    # As if a minute ago, so that what is recorded now began after gateways followed.
    rows("UPDATE rule_sets SET canary_at = now() - interval '1 minute' WHERE state = 'canary'")
    return draft


def store_arms(cast: Cast, *, control: int, trial: int, failed: int = 0) -> None:
    share = SHARE / 1_000
    lot = random.Random(5)
    store(
        routed(cast, "chat", "chat@1", draw=lot.uniform(share, 1), model="small")
        for _ in range(control)
    )
    store(
        routed(
            cast,
            "chat",
            "chat@2",
            draw=lot.uniform(0, share),
            model="large",
            **({"status": 503, "prompt_tokens": 0, "output_tokens": 0} if place < failed else {}),
        )
        for place in range(trial)
    )


def test_requests_are_parted_by_their_lot_and_only_where_the_versions_differ(cast: Cast) -> None:
    assert canary_report(actor=OPERATOR) is None
    start_canary()
    store_arms(cast, control=30, trial=10, failed=4)
    store([asked(cast, "small", draw=0.9), asked(cast, "small", draw=0.1)])
    store([routed(cast, "chat", "chat@1", draw=0.1), routed(cast, "chat", "x@1", receipt=b"")])
    report = canary_report(actor=OPERATOR)
    assert report is not None
    assert (report.version, report.against, report.complete) == (2, 1, True)
    assert (report.alike, report.astray, report.unknown) == (2, 1, 1)
    errors = report.figures[0]
    assert (errors.control, errors.trial, errors.counts) == (0.0, 0.4, (30, 10))
    assert [(each.label, each.requests) for each in report.routes] == [
        ("chat@1", 30),
        ("chat@2", 10),
    ]
    assert report.verdict == CanaryVerdict.EARLY
    with pytest.raises(PermissionDenied):
        canary_report(actor=cast.alice)


def test_tenants_beyond_the_bound_make_a_comparison_incomplete(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tenants.selectors", "routing.traffic"):
        monkeypatch.setattr(f"controlplane.{name}.ORGANIZATIONS_MAX", 1)
    start_canary()
    report = canary_report(actor=OPERATOR)
    assert report is not None and not report.complete


def test_a_canary_that_fails_is_ended_if_it_was_started_so(cast: Cast) -> None:
    assert ruleset_canary_watch() is None
    start_canary(stops_itself=True)
    assert ruleset_canary_watch() is None
    store_arms(cast, control=300, trial=100, failed=20)
    assert tasks.ruleset_canary_watch() == 1
    assert ruleset_on_trial() is None
    assert tasks.ruleset_canary_watch() == 0
    ((label, detail),) = rows(
        "SELECT actor_label, detail FROM audit_entries WHERE action = 'ruleset.canary_stop'"
    )
    assert (label, detail["reason"]) == (
        "canary watch",
        "errors 20.00% of 100 against 0.00%",
    )


def test_the_watch_is_on_the_schedule() -> None:
    assert app.conf.beat_schedule["routing.ruleset_canary_watch"]["schedule"] == 30.0


def test_a_canary_that_fails_goes_on_unless_it_was_started_so(cast: Cast) -> None:
    start_canary()
    store_arms(cast, control=300, trial=100, failed=20)
    assert ruleset_canary_watch() is None
    assert ruleset_on_trial() is not None
