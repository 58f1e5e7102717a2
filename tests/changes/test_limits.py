"""A change of limits and budgets: drafted, checked, tried, put in force, undone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from controlplane.billing.budgets.selectors import budget_list
from controlplane.billing.budgets.services import BudgetDraft, budget_plan
from controlplane.changes.content import LimitPart
from controlplane.changes.dryruns import (
    ReachedLimitCount,
    Terms,
    _Spending,
    limits_dry_run,
    limits_shadow,
)
from controlplane.changes.limits import LimitChanges
from controlplane.changes.models import ChangeVersion
from controlplane.changes.replay import Allowed, Arrival
from controlplane.changes.versions import BOUND, ENTRIES_MAX, Differing, FieldDifference
from controlplane.core.errors.body import Conflict
from controlplane.core.models import AuditEntry
from controlplane.core.permissions import organization_scope
from controlplane.kernel.clock import wall_us
from controlplane.kernel.ids import public_id
from controlplane.quotas.selectors import rate_limit_map
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.keys import apikey_create
from tests.support.people import Cast, make_cast
from tests.support.rules import make_models
from tests.support.traffic import asked, store

MINUTE_US = 60_000_000


@pytest.fixture
def cast(database: str) -> Cast:
    make_models("small", "large")
    return make_cast()


@pytest.fixture
def changes(cast: Cast) -> LimitChanges:
    return LimitChanges(cast.alice, cast.acme.id)


def project(cast: Cast) -> str:
    return public_id("proj", cast.project.id)


def limit(cast: Cast, **limits: Any) -> dict[str, Any]:
    return {"limits": [{"of": project(cast), **limits}]}


def put(changes: LimitChanges, content: dict[str, Any]) -> ChangeVersion:
    return changes.publish(changes.draft_create(content))


def in_force(cast: Cast) -> int | None:
    found = rate_limit_map(user=cast.alice).get(cast.project.id)
    return found.requests_per_min if found else None


def test_what_is_published_is_undone_one_change_after_the_other(
    cast: Cast, changes: LimitChanges
) -> None:
    rate_limit_set(actor=cast.alice, subject=cast.project, requests_per_min=5)
    draft = changes.draft_create(limit(cast, requests_per_min=10))
    assert in_force(cast) == 5
    (told,) = changes.differences(draft)
    assert told == Differing("Project web", [FieldDifference("requests_per_min", 5, 10)])
    first = changes.publish(draft)
    assert (first.version, in_force(cast)) == (1, 10)
    put(changes, limit(cast, requests_per_min=20))
    back = changes.undo(2)
    assert (back.version, back.copy_of and back.copy_of.version, in_force(cast)) == (3, 2, 10)
    with pytest.raises(Conflict, match="is not the last"):
        changes.undo(2)
    changes.undo(3)
    assert in_force(cast) == 5
    with pytest.raises(Conflict, match="no earlier change"):
        changes.undo(4)
    (told,) = changes.differences(changes.get(2))
    assert told.fields == [FieldDifference("requests_per_min", 10, 20)]


def test_a_key_a_model_and_each_end_user_have_their_own(cast: Cast, changes: LimitChanges) -> None:
    key = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    limits = [
        {"of": public_id("key", key.id), "concurrency": 2},
        {"of": project(cast), "model": "small", "tokens_per_min": 100},
        {"of": public_id("org", cast.acme.id), "per_user": True, "requests_per_day": 50},
    ]
    put(changes, {"limits": limits})
    assert rate_limit_map(user=cast.alice)[key.id].concurrency == 2
    names = [one.name for one in changes.differences(changes.get(1))]
    assert names == ["Key k", "Project web, small", "Acme, each end user"]
    changes.undo(1)
    assert rate_limit_map(user=cast.alice) == {}


def test_a_budget_is_set_and_put_back(cast: Cast, changes: LimitChanges) -> None:
    budget_plan(actor=cast.alice, subject=cast.project, draft=BudgetDraft(allowance_nano=7))
    more = {"allowance_nano": 9, "period": "day", "alerts": [50]}
    put(changes, {"budgets": [{"of": project(cast), **more}]})

    def allowance() -> list[tuple[int, str, list[int]]]:
        found = budget_list(actor=cast.alice, organization=cast.acme.id)
        return [(row.allowance, row.period, row.alerts) for row in found]

    assert allowance() == [(9, "day", [50])]
    changes.undo(1)
    assert allowance() == [(7, "none", [])]
    put(changes, {"budgets": [{"of": project(cast), "allowance_nano": None}]})
    assert allowance() == []


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({}, "content"),
        ({"limits": [{"of": "proj_x"}]}, "content.limits[0].of"),
        ({"limits": [{"of": "{other}"}]}, "content.limits[0].of"),
        ({"limits": [{"of": "{project}", "requests_per_min": 0}]}, "content.limits[0].requests"),
        ({"limits": [{"of": "{project}", "model": "gone"}]}, "content.limits[0].model"),
        ({"limits": [{"of": "{project}"}, {"of": "{project}"}]}, "content.limits[1]"),
        ({"budgets": [{"of": "{project}", "allowance_nano": -1}]}, "content.budgets[0].allow"),
        (
            {"budgets": [{"of": "{project}", "allowance_nano": 1, "zone": "X"}]},
            "content.budgets[0].z",
        ),
        ({"budgets": [{"of": "{acme}", "model": "small"}]}, "content.budgets[0].model"),
    ],
)
def test_what_cannot_be_put_in_force_is_told_by_field(
    cast: Cast, changes: LimitChanges, content: dict[str, Any], field: str
) -> None:
    ids = {
        "{project}": project(cast),
        "{other}": public_id("proj", cast.other_project.id),
        "{acme}": public_id("org", cast.acme.id),
    }
    for entries in content.values():
        for entry in entries:
            entry["of"] = ids.get(entry["of"], entry["of"])
    draft = changes.draft_create(content)
    assert [name for name, _ in changes.problems(draft) if name.startswith(field)]
    for step in (changes.publish, changes.canary_start, partial(limits_dry_run, changes)):
        with pytest.raises(ValidationError) as caught:
            step(draft)
        assert any(name.startswith(field) for name in caught.value.message_dict)
    assert rate_limit_map(user=cast.alice) == {}


def test_other_shapes_are_refused_at_once(cast: Cast, changes: LimitChanges) -> None:
    wrong: list[Any] = [{"limit": []}, {"limits": [{"of": "x", "rpm": 1}]}, []]
    for content in wrong:
        with pytest.raises(ValidationError):
            changes.draft_create(content)


def test_a_draft_is_looked_at_without_a_lock(cast: Cast, changes: LimitChanges) -> None:
    budget = {"of": project(cast), "allowance_nano": 9}
    draft = changes.draft_create({**limit(cast, concurrency=1), "budgets": [budget]})
    with transaction.atomic(), connection.cursor() as cursor:
        # Refuses to lock rows, too.
        cursor.execute("SET TRANSACTION READ ONLY")
        assert changes.problems(draft) == [] and len(changes.differences(draft)) == 2
        limits_dry_run(changes, draft, 1)


def test_a_draft_of_too_much_is_refused_when_it_is_written(
    cast: Cast, changes: LimitChanges
) -> None:
    limits = [{"of": project(cast), "concurrency": place} for place in range(ENTRIES_MAX + 1)]
    with pytest.raises(ValidationError) as caught:
        changes.draft_create({"limits": limits})
    assert list(caught.value.message_dict) == ["content"]
    draft = changes.draft_create({"limits": limits[1:]})
    with pytest.raises(ValidationError):
        changes.draft_update(draft, {"limits": limits}, "")
    # As it may have been stored before there was a bound.
    draft.content = {"limits": limits}
    assert changes.problems(draft) == [("content", BOUND)]
    changes.draft_discard(draft)


def test_only_who_sets_limits_sees_changes(cast: Cast) -> None:
    for actor, error in ((cast.bob, PermissionDenied), (cast.charlie, ObjectDoesNotExist)):
        strange = LimitChanges(actor, cast.acme.id)
        with pytest.raises(error):
            strange.draft_create(limit(cast, concurrency=1))
        with pytest.raises(error):
            strange.newest()


def test_each_step_is_audited(cast: Cast, changes: LimitChanges) -> None:
    put(changes, limit(cast, concurrency=1))
    changes.undo(1)
    rows = AuditEntry.objects.filter(action__startswith="change.")
    with organization_scope([cast.acme.id]):
        found = list(rows.order_by("id").values_list("action", "detail__version"))
    assert found == [("change.draft_create", 1), ("change.publish", 1), ("change.rollback", 2)]


def test_a_dry_run_says_whom_it_would_have_refused(cast: Cast, changes: LimitChanges) -> None:
    keys = [apikey_create(actor=cast.alice, project=cast.project, label=n).key for n in "ab"]
    store([asked(cast, "small", key=keys[0].id.hex) for _ in range(3)])
    store([asked(cast, "large", key=keys[1].id.hex)])
    store([asked(cast, "small", status=400)])
    found = limits_dry_run(changes, changes.draft_create(limit(cast, requests_per_min=2)), 1)
    total = found.total
    assert found.complete
    assert (total.requests, total.before, total.after, total.newly) == (4, 0, 2, 2)
    assert [(one.name, one.tally.newly) for one in found.projects] == [("web", 2)]
    assert {one.name: one.tally.newly for one in found.keys} == {"a": 1, "b": 1}
    assert {one.name: one.tally.newly for one in found.models} == {"large": 1, "small": 1}
    assert found.reached == [ReachedLimitCount("web", "requests", 2)]
    assert found.first is not None and found.first <= (found.last or found.first)
    assert in_force(cast) is None
    alone = {"limits": [{"of": public_id("key", keys[0].id), "tokens_per_min": 300}]}
    assert limits_dry_run(changes, changes.draft_create(alone), 1).total.newly == 1


def test_requests_arrive_by_their_moment_whatever_their_ids(
    cast: Cast, changes: LimitChanges
) -> None:
    began_us = wall_us() - MINUTE_US
    store([asked(cast, "small", started_us=began_us + late) for late in (MINUTE_US // 2, 0)])
    found = limits_dry_run(changes, changes.draft_create(limit(cast, requests_per_min=1)), 1)
    assert found.total.newly == 1 and found.first is not None
    assert round(found.first.timestamp() * 1e6) == began_us + MINUTE_US // 2


def test_a_dry_run_spends_budgets_once_more(cast: Cast, changes: LimitChanges) -> None:
    store([asked(cast, "small", cost_nano=100) for _ in range(4)])
    content: dict[str, Any] = {"budgets": [{"of": project(cast), "allowance_nano": 250}]}
    found = limits_dry_run(changes, changes.draft_create(content), 1)
    assert (found.total.newly, found.total.nano) == (2, 200)
    assert [(one.of, one.kind) for one in found.reached] == [("web", "budget")]


def test_budgets_that_no_request_pays_are_not_read(cast: Cast, changes: LimitChanges) -> None:
    store([asked(cast, "small", cost_nano=100) for _ in range(2)])
    draft = changes.draft_create({"budgets": [{"of": project(cast), "allowance_nano": 150}]})

    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert limits_dry_run(changes, draft, 1).total.newly == 1
        return len(seen)

    def plan(label: str, period: str) -> None:
        key = apikey_create(actor=cast.alice, project=cast.project, label=label).key
        terms = BudgetDraft(allowance_nano=7, period=period)
        budget_plan(actor=cast.alice, subject=key, draft=terms)

    plan("first", "day")
    few = queries()
    for place in range(8):
        plan(f"k{place}", ("none", "week")[place % 2])
    assert queries() == few


def test_what_a_period_has_spent_before_counts(cast: Cast, changes: LimitChanges) -> None:
    key = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    spent = (("small", 30), ("large", 40))
    store([asked(cast, model, cost_nano=nano, key=key.id.hex) for model, nano in spent])
    start = datetime.now(UTC) + timedelta(minutes=2)
    subjects = (key.id, cast.project.id, cast.acme.id)
    arrival = Arrival(start.timestamp(), 1.0, 5, 10, subjects, key.id, "small", "")
    whole, small = LimitPart(), LimitPart("small")
    month = Allowed(100, "month")
    terms: Terms = {
        key.id: {whole: month},
        cast.project.id: {whole: month, small: month, LimitPart(per_user=True): month},
        cast.acme.id: {whole: month},
        cast.other.id: {whole: month},
    }
    (found,) = _Spending(cast.acme.id, start, [arrival], {key.id: key.id}).begun((terms,))
    begun = {of: [one.spent_nano for one in parts.values()] for of, parts in found.items()}
    assert begun == {key.id: [70], cast.project.id: [70, 30, 0], cast.acme.id: [70]}


def test_a_shadow_counts_and_refuses_nothing(
    cast: Cast, changes: LimitChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limits_shadow(changes) is None
    draft = changes.draft_create(limit(cast, requests_per_min=1))
    trial = changes.canary_start(draft)
    assert (trial.state, in_force(cast)) == ("canary", None)
    with pytest.raises(Conflict, match="is in shadow"):
        changes.canary_start(changes.draft_create(limit(cast, concurrency=1)))
    monkeypatch.setattr(
        "controlplane.changes.dryruns.SETTLE", type(cast.acme.created_at - cast.acme.created_at)()
    )
    store([asked(cast, "small") for _ in range(3)])
    found = limits_shadow(changes)
    assert found is not None and (found.total.requests, found.total.newly) == (3, 2)
    changes.publish(changes.get(trial.version))
    assert in_force(cast) == 1
    assert limits_shadow(changes) is None


@pytest.mark.parametrize("hours", [0, 169])
def test_hours_are_bounded(cast: Cast, changes: LimitChanges, hours: int) -> None:
    draft = changes.draft_create(limit(cast, concurrency=1))
    with pytest.raises(ValidationError) as caught:
        limits_dry_run(changes, draft, hours)
    assert list(caught.value.message_dict) == ["hours"]
