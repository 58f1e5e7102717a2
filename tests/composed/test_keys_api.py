"""Keys and limits under /api/: made with all that belongs to them, rotated, revoked, told of."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.test import Client
from django.utils import timezone

from controlplane.billing.budgets.selectors import budget_map
from controlplane.billing.budgets.services import BudgetDraft, ProjectPart, budget_plan
from controlplane.composed.keys.services import KeyOrder, key_make, key_report, keys_missed_soon
from controlplane.composed.limits.selectors import effective_limits
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role, organization_scope
from controlplane.kernel.keys.format import parse_credential
from controlplane.quotas.selectors import rate_limit_map
from controlplane.quotas.services import LimitedPart, LimitSet, rate_limit_set
from controlplane.tenants.keys import KeyTerms, apikey_create, apikey_revoke, apikey_rotate
from controlplane.tenants.models import ApiKey
from controlplane.tenants.people.services import membership_set
from frontend.keys.limit_views import effective_rows
from tests.browser.history import write_history
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import generates, make_models, publish

pytestmark = pytest.mark.usefixtures("database")
MODEL = "m-1"


def base(cast: Cast) -> str:
    return f"/api/organizations/{cast.acme.id}"


def send(client: Client, method: str, path: str, body: object) -> tuple[int, dict[str, object]]:
    data = msgspec.json.encode(body)
    answer = client.generic(method, path, data, content_type="application/json")
    return answer.status_code, answer.json()


def test_a_key_comes_with_its_limits_and_its_budget_or_not_at_all() -> None:
    cast = make_cast()
    order = KeyOrder(
        "k",
        limits=LimitSet(requests_per_min=5, concurrency=2),
        budget=BudgetDraft(allowance_nano=10**9, period="month"),
    )
    made = key_make(actor=cast.alice, project=cast.project, order=order).key
    limit = rate_limit_map(user=cast.alice)[made.id]
    assert (limit.requests_per_min, limit.concurrency, limit.tokens_per_min) == (5, 2, None)
    assert budget_map(organization=cast.acme.id, subjects=[made.id])[made.id].lim == 10**9
    with pytest.raises(PermissionDenied):
        key_make(actor=cast.bob, project=cast.project, order=order)
    with organization_scope([cast.acme.id]):
        assert ApiKey.objects.count() == 1


def test_a_developers_limits_only_narrow() -> None:
    cast = make_cast()
    rate_limit_set(actor=cast.alice, subject=cast.project, requests_per_min=60)
    rate_limit_set(actor=cast.alice, subject=cast.acme, concurrency=8)
    narrow = KeyOrder("k", limits=LimitSet(requests_per_min=60, concurrency=8))
    key = key_make(actor=cast.bob, project=cast.project, order=narrow).key
    assert rate_limit_map(user=cast.bob)[key.id].requests_per_min == 60
    for wanted, field in (
        (LimitSet(requests_per_min=61), "requests_per_min"),
        (LimitSet(concurrency=9), "concurrency"),
        (LimitSet(requests_per_day=0), "requests_per_day"),
    ):
        with pytest.raises(ValidationError) as caught:
            key_make(actor=cast.bob, project=cast.project, order=KeyOrder("w", limits=wanted))
        assert list(caught.value.message_dict) == [field]
    with pytest.raises(PermissionDenied):
        rate_limit_set(actor=cast.bob, subject=key, requests_per_min=61)


def test_the_effective_limit_is_the_least_and_says_whose() -> None:
    cast = make_cast()
    make_models(MODEL)
    order = KeyOrder("k", KeyTerms(models=[MODEL]), limits=LimitSet(requests_per_min=50))
    key = key_make(actor=cast.bob, project=cast.project, order=order).key
    rate_limit_set(actor=cast.alice, subject=cast.project, requests_per_min=40, tokens_per_min=9)
    rate_limit_set(actor=cast.alice, subject=cast.acme, requests_per_min=70, requests_per_day=500)
    budget_plan(actor=cast.alice, subject=cast.acme, draft=BudgetDraft(allowance_nano=77))
    view = effective_limits(key=key, model=MODEL)
    rows = {row.dimension: row for row in view.rows}
    assert view.refusal == ""
    assert rows["requests_per_min"].levels == {"key": 50, "project": 40, "organization": 70}
    assert (rows["requests_per_min"].binds, rows["requests_per_min"].limit) == ("project", 40)
    assert (rows["tokens_per_min"].binds, rows["requests_per_day"].binds) == (
        "project",
        "organization",
    )
    assert (rows["concurrency"].binds, rows["concurrency"].limit) == (None, None)
    assert (rows["budget_nano"].binds, rows["budget_nano"].limit) == ("organization", 77)
    assert rows["output_tokens"].binds == "model"
    assert effective_limits(key=key, model="other").refusal
    users, of_model = LimitedPart(cast.project, per_user=True), LimitedPart(cast.acme, MODEL)
    rate_limit_set(actor=cast.alice, subject=users, requests_per_min=5)
    rate_limit_set(actor=cast.alice, subject=of_model, requests_per_min=6, concurrency=3)
    for part, nano in ((ProjectPart(cast.project), 9), (ProjectPart(cast.project, MODEL), 8)):
        draft = BudgetDraft(allowance_nano=nano)
        budget_plan(actor=cast.alice, subject=part, draft=draft)
    rows = {row.dimension: row for row in effective_limits(key=key, model=MODEL).rows}
    assert rows["requests_per_min"].levels == {
        "key": 50, "project": 40, "project_user": 5, "organization": 70, "organization_model": 6,
    }  # fmt: skip
    binding = {name: (row.binds, row.limit) for name, row in rows.items()}
    assert binding["requests_per_min"] == ("project_user", 5)
    assert binding["concurrency"] == ("organization_model", 3)
    assert binding["budget_nano"] == ("project_model", 8)
    assert rows["budget_nano"].levels["project_user"] == 9
    shown = {row.words: row for row in effective_rows(rows.values())}
    assert shown["Requests per minute"].binds == "project for each end user"
    assert ("Project", "40; 5 for each end user") in shown["Requests per minute"].cells
    other = {row.dimension: row for row in effective_limits(key=key, model="other").rows}
    assert other["concurrency"].binds is None and "project_model" not in other["budget_nano"].levels


def test_a_key_over_the_api_is_made_listed_rotated_and_revoked() -> None:
    cast = make_cast()
    client, path = signed_in(cast.bob), base(cast)
    body = {
        "project": str(cast.project.id),
        "label": "nightly",
        "endpoints": ["chat"],
        "networks": ["10.0.0.0/8"],
        "requests_per_day": 1000,
    }
    status, made = send(client, "POST", f"{path}/keys", body)
    assert status == 201 and parse_credential(str(made["secret"])) is not None
    assert (made["endpoints"], made["networks"], made["state"]) == (
        ["chat"],
        ["10.0.0.0/8"],
        "active",
    )
    one = f"{path}/keys/{made['id']}"
    assert "secret" not in client.get(one).json()
    assert [row["id"] for row in client.get(f"{path}/keys").json()["data"]] == [made["id"]]
    status, new = send(client, "POST", f"{one}/rotate", {"overlap_s": 90})
    assert status == 201 and new["replaces"] == made["id"] and new["secret"] != made["secret"]
    assert client.get(one).json()["replaced_by"] == new["id"]
    assert send(client, "POST", f"{one}/rotate", {})[0] == 409
    assert send(client, "POST", f"{one}/revoke", {"reason": "leaked"})[1]["changed"] is True
    assert send(client, "POST", f"{one}/revoke", {})[1]["changed"] is False
    assert send(client, "PUT", f"{one}/limits", {"requests_per_day": 5})[0] == 403
    (limit,) = client.get(f"{path}/limits").json()["data"]
    assert (limit["id"], limit["requests_per_day"]) == (made["id"], 1000)
    status, wrong = send(client, "POST", f"{path}/keys", {**body, "networks": ["10.0.0.1/8"]})
    assert status == 400 and list(wrong["error"]["fields"]) == ["networks"]  # type: ignore[index]


def test_limits_over_the_api_are_set_by_who_may() -> None:
    cast = make_cast()
    key = apikey_create(actor=cast.bob, project=cast.project, label="k").key
    owner, path = signed_in(cast.alice), base(cast)
    for where in ("limits", f"projects/{cast.project.id}/limits", f"keys/{key.id}/limits"):
        status, told = send(owner, "PUT", f"{path}/{where}", {"concurrency": 3})
        assert (status, told["concurrency"], told["tokens_per_min"]) == (200, 3, None)
    told = owner.get(f"{path}/keys/{key.id}/effective?model=none").json()
    assert told["refusal"] == "No node serves a model with this name."
    (row,) = [row for row in told["data"] if row["dimension"] == "concurrency"]
    assert row["levels"] == {"key": 3, "project": 3, "organization": 3} and row["binds"] == "key"
    stranger = signed_in(cast.charlie)
    assert stranger.get(f"{path}/limits").status_code == 404
    assert stranger.get(f"{path}/keys/{key.id}").status_code == 404
    other = f"/api/organizations/{cast.other.id}/keys/{key.id}"
    assert owner.get(other).status_code == stranger.get(other).status_code == 404


def test_a_report_tells_what_a_key_touched_and_how_long_it_went_on() -> None:
    cast = make_cast()
    key = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    with organization_scope([cast.acme.id]):
        ApiKey.objects.filter(id=key.id).update(created_at=timezone.now() - timedelta(days=9))
    write_history(cast, key, MODEL)
    report = key_report(key=_again(cast, key))
    assert report.took_ms is None and report.requests > 0
    assert [row.model for row in report.touched] == [MODEL]
    assert report.first is not None and report.last is not None
    assert apikey_revoke(actor=cast.alice, key=key)
    assert key_report(key=_again(cast, key)).took_ms == 0
    with organization_scope([cast.acme.id]):
        earlier = report.last - timedelta(milliseconds=700)
        ApiKey.objects.filter(id=key.id).update(revoked_at=earlier)
    assert key_report(key=_again(cast, key)).took_ms == 700


def test_an_old_key_that_is_still_used_near_its_end_is_told() -> None:
    cast = make_cast()
    key = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    write_history(cast, key, MODEL)
    apikey_rotate(actor=cast.alice, key=key, overlap_s=3600)
    old = _again(cast, key)
    assert keys_missed_soon(organization=cast.acme.id, keys=[old]) == {key.id}
    with organization_scope([cast.acme.id]):
        ApiKey.objects.filter(id=key.id).update(expires_at=timezone.now() + timedelta(days=5))
    assert keys_missed_soon(organization=cast.acme.id, keys=[_again(cast, key)]) == set()


def _again(cast: Cast, key: ApiKey) -> ApiKey:
    with organization_scope([cast.acme.id]):
        return ApiKey.objects.select_related("replaced_by").get(id=key.id)


def test_a_reason_that_no_column_takes_is_told_and_keeps_no_page_from_revoking() -> None:
    cast = make_cast()
    key = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    alice = signed_in(cast.alice)
    status, told = send(alice, "POST", f"{base(cast)}/keys/{key.id}/revoke", {"reason": "a\0b"})
    assert status == 400
    assert "reason" in str(told)
    assert alice.post(f"/keys/{key.id.hex}/revoke", {"reason": "a\0b"}).status_code == 302
    with organization_scope([cast.acme.id]):
        assert ApiKey.objects.get(id=key.id).revoked_reason == "ab"


def test_limits_of_a_project_are_set_under_its_own_organization() -> None:
    cast = make_cast()
    membership_set(actor=OPERATOR, organization=cast.other, user=cast.alice, role=Role.OWNER)
    path = f"projects/{cast.other_project.id}/limits"
    alice = signed_in(cast.alice)
    assert send(alice, "PUT", f"{base(cast)}/{path}", {"concurrency": 1})[0] == 404
    own = f"/api/organizations/{cast.other.id}"
    assert send(alice, "PUT", f"{own}/{path}", {"concurrency": 1})[0] == 200


def test_a_key_may_name_an_alias_of_rules() -> None:
    cast = make_cast()
    make_models(MODEL)
    publish(generates("r", MODEL, aliases=["smart"]))
    order = KeyOrder("k", KeyTerms(models=["smart"]))
    made = key_make(actor=cast.alice, project=cast.project, order=order).key
    assert made.allowed_models == ["smart"]


@pytest.mark.parametrize("name", ["*", "m-99"])
def test_a_key_names_models_that_there_are(name: str) -> None:
    cast = make_cast()
    make_models(MODEL)
    order = {"project": str(cast.project.id), "label": "k", "models": [MODEL, name]}
    status, told = send(signed_in(cast.alice), "POST", f"{base(cast)}/keys", order)
    assert (status, list(told["error"]["fields"])) == (400, ["models"])  # type: ignore[index]
