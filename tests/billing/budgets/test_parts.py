"""Budgets of a project's models and of each of its end users, as people set and read them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.core.exceptions import ObjectDoesNotExist, ValidationError

from controlplane.billing.budgets.api import budget_json, subject_of
from controlplane.billing.budgets.selectors import budget_list
from controlplane.billing.budgets.services import BudgetDraft, budget_end, budget_plan
from controlplane.kernel.ids import public_id
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import make_models

MODEL = "m-1"
pytestmark = pytest.mark.usefixtures("database")


def plan(cast: Cast, model: str, *, per_user: bool, allowance: int = 50, **draft: object) -> None:
    """As the API does it."""
    subject = subject_of(cast.acme.id, cast.project.id, model, per_user=per_user)
    made = BudgetDraft(allowance_nano=allowance, **draft)  # type: ignore[arg-type]
    budget_plan(actor=cast.alice, subject=subject, draft=made)


def test_parts_are_listed_with_their_project_and_taken_away_by_their_own_ids() -> None:
    cast = make_cast()
    make_models(MODEL)
    plan(cast, MODEL, per_user=False, period="month", alerts=(80,))
    plan(cast, "", per_user=True, period="day")
    rows = budget_list(actor=cast.alice, organization=cast.acme.id)
    told = [budget_json(row) for row in rows]
    project = public_id("proj", cast.project.id)
    assert [(one["scope"], one["project"], one["model"]) for one in told] == [
        ("users", project, None),
        ("model", project, MODEL),
    ]
    page = signed_in(cast.alice).get("/budgets").content.decode()
    for name in (f"{cast.project.name}, each end user", f"{cast.project.name}, {MODEL}"):
        assert name in page
    assert signed_in(cast.alice).get("/spend").status_code == 200
    for row in rows:
        budget_end(actor=cast.alice, subject=subject_of(cast.acme.id, row.id))
    assert budget_list(actor=cast.alice, organization=cast.acme.id) == []


@pytest.mark.parametrize(
    ("model", "per_user", "draft", "field"),
    [
        ("unknown", False, {}, "model"),
        (MODEL, True, {}, "model"),
        ("", True, {"alerts": (50,)}, "alerts"),
        ("", True, {"period": "day", "rollover": True}, "rollover"),
    ],
)
def test_what_a_part_cannot_have_is_named(
    model: str, per_user: bool, draft: dict[str, Any], field: str
) -> None:
    cast = make_cast()
    make_models(MODEL)
    with pytest.raises(ValidationError) as refused:
        plan(cast, model, per_user=per_user, **draft)
    assert list(refused.value.message_dict) == [field]


def test_only_projects_have_parts() -> None:
    cast = make_cast()
    with pytest.raises(ValidationError):
        subject_of(cast.acme.id, cast.acme.id, per_user=True)
    with pytest.raises(ObjectDoesNotExist):
        subject_of(cast.acme.id, uuid.uuid4())
