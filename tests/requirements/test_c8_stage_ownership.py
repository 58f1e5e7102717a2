"""C8: each stage has an owner, a budget and a runbook; pages, the API and alerts show them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import organization_scope
from controlplane.kernel.ids import public_id
from controlplane.kernel.objectives.counting import COMPOSITES, INDICATORS
from controlplane.kernel.spans import STAGES
from controlplane.slos import selectors, services
from controlplane.slos.channels import words
from controlplane.slos.checks import StageBody
from controlplane.slos.duties import DutyBody, duties_now, duty_hand_over
from controlplane.slos.models import EVERYONE, Alert
from controlplane.slos.runbooks import runbook_of, runbook_slugs
from controlplane.tenants.models import User
from tests.support.objectives import draft
from tests.support.people import make_cast, signed_in

OWNER = {"team": "edge", "email": "edge@example.org", "budget_us": 2_500, "runbook": "s1-admission"}


def test_staff_give_a_stage_its_owner_and_everybody_sees_it(database: str) -> None:
    cast = make_cast()
    User.objects.filter(id=cast.alice.id).update(is_staff=True)
    alice, bob = signed_in(User.objects.get(id=cast.alice.id)), signed_in(cast.bob)
    before = bob.get("/stages").content.decode()
    assert before.count("Unassigned") == len(STAGES)
    form = {"team": "edge", "email": "edge@example.org", "budget_ms": "2.5",
            "runbook": "https://wiki.example.org/edge"}  # fmt: skip
    told = alice.post("/stages/s1_admission", form, follow=True).content.decode()
    assert "The owner of Gateway is saved." in told
    after = bob.get("/stages").content.decode()
    assert "edge@example.org" in after and "https://wiki.example.org/edge" in after
    assert bob.post("/stages/s1_admission", form).status_code == 403
    path = f"/api/slos/organizations/{cast.acme.id}/stages"
    first = bob.get(path).json()["data"][0]
    assert (first["stage"], first["team"], first["budget_us"]) == ("s1_admission", "edge", 2_500)
    answer = alice.put(
        "/api/slos/stages/s7_bill", msgspec.json.encode(OWNER), content_type="application/json"
    )
    assert (answer.status_code, answer.json()["runbook"]) == (200, "/runbooks/s1-admission")


def test_what_is_wrong_with_an_owner_is_told_at_its_field(database: str) -> None:
    wrong = {"team": "", "email": "x", "budget_us": 0, "runbook": "none"}
    with pytest.raises(ValidationError) as caught:
        services.stage_owner_set(actor=OPERATOR, stage="s1_admission", owner=StageBody(**wrong))  # type: ignore[arg-type]
    assert set(caught.value.message_dict) == {"team", "email", "budget_us", "runbook"}
    with pytest.raises(ObjectDoesNotExist):
        services.stage_owner_set(actor=OPERATOR, stage="s8", owner=StageBody(**OWNER))  # type: ignore[arg-type]
    with pytest.raises(PermissionDenied):
        owner = StageBody(**OWNER)  # type: ignore[arg-type]
        services.stage_owner_set(actor=make_cast().alice, stage="s7_bill", owner=owner)


def test_an_alert_of_a_stage_names_who_answers_for_it(database: str) -> None:
    made = services.objective_create(
        actor=OPERATOR,
        organization=EVERYONE,
        draft=draft(indicator="stage:s1_admission", threshold=5_000, team="edge"),
    )
    alert = Alert(objective=made, severity="page", rule="page_quick", organization=EVERYONE)
    told = words.payload(alert, "firing", alert.id)
    assert told["owner"] == {"team": "edge", "email": "platform@example.org"}
    assert told["runbook"] == "/runbooks/s1-admission"
    assert "owner: edge" in words.words(alert, "firing")
    assert selectors.stage_alerts(actor=OPERATOR, organizations=[EVERYONE]) == {}
    with organization_scope([EVERYONE]):
        alert.save()
    found = selectors.stage_alerts(actor=OPERATOR, organizations=[EVERYONE])
    assert {name: [one.id for one in each] for name, each in found.items()} == {
        "stage:s1_admission": [alert.id]
    }


def test_a_duty_is_handed_over_on_a_day_and_stands_on_pages_alerts_and_runbooks(
    database: str,
) -> None:
    cast = make_cast()
    User.objects.filter(id=cast.alice.id).update(is_staff=True)
    alice, bob = signed_in(User.objects.get(id=cast.alice.id)), signed_in(cast.bob)
    today = datetime.now(UTC).date()
    later = today + timedelta(days=30)
    for team, begins in (("router", today), ("edge", later)):
        form = {"duty": "routing", "team": team, "begins": begins.isoformat()}
        told = alice.post("/stages/s4_route/duties", form, follow=True).content.decode()
        assert f"{team} has routing from {begins} on." in told
        assert bob.post("/stages/s4_route/duties", form).status_code == 403
    page = " ".join(bob.get("/stages").content.decode().split())
    assert f"routing: router (from {later} edge)" in page
    assert "Routing of s4_route: router." in bob.get("/runbooks/s4-route").content.decode()
    duties = {one.duty: one for one in duties_now()["s4_route"]}
    assert (duties["routing"].team, duties["limits"].team) == ("router", "")
    assert {one.duty: one.team for one in duties_now(later)["s4_route"]}["routing"] == "edge"
    body = msgspec.json.encode({"team": "", "begins": str(later)})
    path = "/api/slos/stages/s4_route/duties/routing"
    answer = alice.put(path, body, content_type="application/json")
    (routing,) = [one for one in answer.json()["duties"] if one["duty"] == "routing"]
    assert (routing["next_team"], routing["next_begins"]) == ("", str(later))
    made = services.objective_create(
        actor=OPERATOR,
        organization=EVERYONE,
        draft=draft(indicator="cache_hit", threshold=500_000),
    )
    alert = Alert(objective=made, severity="page", rule="page_quick", organization=EVERYONE)
    assert "routing of s4_route: router" in words.words(alert, "firing")
    with organization_scope([EVERYONE]):
        alert.save()
    for path in ("/slos", f"/slos/{public_id('objective', made.id)}"):
        table = " ".join(alice.get(path).content.decode().split())
        assert "routing of s4_route: router" in table.partition('id="alerts-title"')[2]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"duty": "coffee"}, "duty"),
        ({"team": "x" * 101}, "team"),
        ({"email": "x"}, "email"),
        ({"begins": date(2020, 1, 1)}, "begins"),
    ],
)
def test_what_is_wrong_with_a_hand_over_is_told_at_its_field(
    database: str, changed: dict[str, Any], field: str
) -> None:
    usual = {"duty": "index", "team": "us", "email": "", "begins": datetime.now(UTC).date()}
    wanted: dict[str, Any] = {**usual, **changed}
    duty = wanted.pop("duty")
    with pytest.raises(ValidationError) as caught:
        duty_hand_over(actor=OPERATOR, stage="s4_route", duty=duty, to=DutyBody(**wanted))
    assert set(caught.value.message_dict) == {field}


def test_a_runbook_ships_for_every_indicator_and_stage() -> None:
    indicators = (*INDICATORS, *COMPOSITES)
    wanted = {runbook_of(indicator) for indicator in indicators} | {"absent-data"}
    assert wanted == set(runbook_slugs())
