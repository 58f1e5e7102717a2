"""Objectives as rows: what may be kept, what begins a version, who may."""

from __future__ import annotations

import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError

from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.objectives.burn import Count
from controlplane.kernel.objectives.counting import IndicatorPart
from controlplane.slos import selectors, services
from controlplane.slos.models import EVERYONE, Alert, Objective
from controlplane.slos.standings import ObjectiveStatus
from frontend.slos.objectives import objective_row
from tests.support.objectives import draft
from tests.support.people import Cast, make_cast


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def complaints(**changes: object) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as caught:
        services.objective_create(actor=OPERATOR, organization=EVERYONE, draft=draft(**changes))
    found: dict[str, list[str]] = caught.value.message_dict
    return found


def test_every_complaint_names_its_field(database: str) -> None:
    bad = complaints(
        name=" ",
        indicator="uptime",
        target_ppm=1_000_000,
        period_days=7,
        threshold=-1,
        team="",
        email="nobody",
        runbook="javascript:alert(1)",
        absent_after_min=361,
        prompt_bucket=6,
        shed_priority=2,
    )
    assert set(bad) == {
        "name", "indicator", "target_ppm", "period_days", "threshold", "team", "email", "runbook",
        "absent_after_min", "prompt_bucket", "shed_priority",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"parts": (IndicatorPart("ttft", 1),)}, {"parts"}),
        ({"indicator": "all_of"}, {"parts"}),
        (
            {"indicator": "any_of", "parts": (IndicatorPart("ttft", 1), IndicatorPart("ttft", 2))},
            {"parts"},
        ),
        (
            {
                "indicator": "any_of",
                "threshold": 5,
                "parts": (IndicatorPart("ttft", 0), IndicatorPart("all_of", 2)),
            },
            {"threshold", "parts[0].threshold", "parts[1].indicator"},
        ),
        ({"pool": "a" * 201, "region": " "}, {"pool", "region"}),
    ],
)
def test_parts_and_scopes_are_refused_at_their_place(
    database: str, changes: dict[str, object], fields: set[str]
) -> None:
    assert set(complaints(**changes)) == fields


def test_a_rule_that_could_never_fire_is_refused_and_left_out_by_itself(database: str) -> None:
    told = complaints(target_ppm=900_000, rules=("page_quick", "page_slow"))
    assert list(told) == ["rules"]
    assert "page_quick can never fire" in told["rules"][0]
    assert "at least 93.0556 %" in told["rules"][0]
    made = services.objective_create(
        actor=OPERATOR, organization=EVERYONE, draft=draft(target_ppm=900_000)
    )
    assert made.rules == ["page_slow", "ticket_quick", "ticket_slow"]
    assert made.runbook == "availability"


def test_a_new_target_keeps_the_counts_and_a_new_threshold_begins_a_version(cast: Cast) -> None:
    made = services.objective_create(
        actor=cast.alice,
        organization=cast.acme.id,
        draft=draft(indicator="ttft", threshold=500_000),
    )
    stricter = services.objective_update(
        actor=cast.alice,
        objective=made,
        draft=draft(indicator="ttft", threshold=500_000, target_ppm=995_000),
    )
    assert stricter.version == 1
    faster = services.objective_update(
        actor=cast.alice,
        objective=made,
        draft=draft(indicator="ttft", threshold=300_000, target_ppm=995_000),
    )
    assert faster.version == 2
    found = selectors.burn_down(actor=cast.bob, organization=cast.acme.id, objective_id=made.id)
    assert [mark.text for mark in found.marks] == [
        "objective created",
        "target 99 % to 99.5 %",
        "threshold 500 ms to 300 ms",
    ]


def test_members_see_and_only_those_who_run_it_change(cast: Cast) -> None:
    made = services.objective_create(
        actor=cast.alice, organization=cast.acme.id, draft=draft(project=cast.project.id)
    )
    seen = selectors.objective_standings(actor=cast.bob, organization=cast.acme.id)
    assert [(one.objective.id, one.state) for one in seen] == [(made.id, "no data")]
    with pytest.raises(PermissionDenied):
        services.objective_end(actor=cast.bob, objective=made)
    with pytest.raises(ObjectDoesNotExist):
        selectors.objective_standings(actor=cast.charlie, organization=cast.acme.id)
    with pytest.raises(PermissionDenied):
        selectors.objective_standings(actor=cast.alice, organization=EVERYONE)
    with pytest.raises(ValidationError) as caught:
        services.objective_create(
            actor=cast.alice,
            organization=cast.acme.id,
            draft=draft(name="x", project=cast.other_project.id, stop_canary=True),
        )
    assert set(caught.value.message_dict) == {"actions"}
    with pytest.raises(ValidationError) as caught:
        services.objective_create(
            actor=cast.alice,
            organization=cast.acme.id,
            draft=draft(name="x", project=cast.other_project.id),
        )
    assert set(caught.value.message_dict) == {"project"}


def test_a_name_is_free_again_when_its_objective_has_ended(cast: Cast) -> None:
    first = services.objective_create(actor=cast.alice, organization=cast.acme.id, draft=draft())
    with pytest.raises(ValidationError, match="already"):
        services.objective_create(actor=cast.alice, organization=cast.acme.id, draft=draft())
    services.objective_end(actor=cast.alice, objective=first)
    services.objective_create(actor=cast.alice, organization=cast.acme.id, draft=draft())
    with pytest.raises(ObjectDoesNotExist):
        services.objective_end(actor=cast.alice, objective=first)


@pytest.mark.parametrize(
    ("good", "total", "severities", "state", "words", "left"),
    [
        (0, 0, (), "no data", "no data yet", "–"),
        (0, 0, ("absent",), "absent", "no recent data", "–"),
        (1_000, 1_000, (), "ok", "within budget", "100.0 %"),
        (9_900_001, 10_000_000, (), "ok", "within budget", "< 0.1 %"),
        (9_900_000, 10_000_000, (), "spent", "budget exhausted", "0.0 %"),
        (980, 1_000, (), "spent", "budget exhausted", "−100.0 %"),
        (995, 1_000, ("ticket",), "ticket", "burning", "50.0 %"),
        (980, 1_000, ("ticket",), "ticket", "burning, budget exhausted", "−100.0 %"),
        (995, 1_000, ("ticket", "page"), "page", "breaching", "50.0 %"),
        (980, 1_000, ("page",), "page", "breaching, budget exhausted", "−100.0 %"),
        (980, 1_000, ("absent",), "absent", "no recent data, budget exhausted", "−100.0 %"),
    ],
)
def test_a_budget_that_is_spent_is_said_to_be(
    good: int, total: int, severities: tuple[str, ...], state: str, words: str, left: str
) -> None:
    objective = Objective(
        enabled=True, indicator="availability", target_ppm=990_000, period_days=30
    )
    alerts = tuple(Alert(severity=one) for one in severities)
    standing = ObjectiveStatus(objective, {}, Count(good, total), None, alerts)
    row = objective_row(standing)
    assert (standing.state, row.state, row.left) == (state, words, left)
    objective.enabled = False
    assert (standing.state, objective_row(standing).state) == ("paused", "paused")
