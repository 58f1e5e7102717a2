"""Saved views: under a name, for oneself or for all members; within a bound, and audited."""

from __future__ import annotations

import pytest
from django.test import Client

from controlplane.core.permissions import Role, organization_scope
from controlplane.insights import saved
from controlplane.insights.models import SavedView
from controlplane.kernel.ids import public_id
from controlplane.tenants.people.services import membership_set
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in

QUERY = "range=6h&by=key&measure=prefill&status=failed"
TOLD = "SELECT action, detail->>'name' FROM audit_entries WHERE action LIKE 'view.%%' ORDER BY id"


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def _save(client: Client, **form: str) -> str:
    answer = client.post("/explore/views", {"query": QUERY, **form}, follow=True)
    return answer.content.decode()


def _view(cast: Cast, name: str) -> SavedView:
    with organization_scope([cast.acme.id]):
        return SavedView.objects.get(name=name)


def test_a_view_is_saved_replaced_shared_and_removed(cast: Cast) -> None:
    alice, bob, charlie = (signed_in(one) for one in (cast.alice, cast.bob, cast.charlie))
    assert "is saved for you" in _save(bob, name="slow <keys>")
    view = _view(cast, "slow <keys>")
    assert view.query == "range=6h&status=failed&by=key&measure=prefill"
    listed = bob.get("/explore").content.decode()
    assert "slow &lt;keys&gt;" in listed and ">you<" in listed
    assert "slow &lt;keys&gt;" in bob.get("/find?q=slow").content.decode()
    address = f"/explore/views/{public_id('view', view.id)}/remove"
    for stranger in (alice, charlie):
        assert "slow &lt;keys&gt;" not in stranger.get("/explore").content.decode()
        assert stranger.post(address).status_code == 404
    assert "is saved for all members" in _save(
        bob, name="slow <keys>", query="by=pool", shared="on"
    )
    assert _view(cast, "slow <keys>").query.endswith("by=pool")
    assert "bob@example.org" in alice.get("/explore").content.decode()
    assert "slow" not in charlie.get("/explore").content.decode()
    # Who only looks on removes nothing of others; who runs the organization does.
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.stella, role=Role.VIEWER)
    assert signed_in(cast.stella).post(address).status_code == 403
    assert "is removed" in alice.post(address, follow=True).content.decode()
    assert rows(TOLD) == [
        (step, "slow <keys>") for step in ("view.save", "view.save", "view.remove")
    ]


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"name": ""}, "This field is required."),
        ({"name": "x" * 81}, "at most 80 characters"),
        ({"name": "a\0b"}, "Null characters"),
        ({"name": "long", "query": "x" * 4_001}, "at most 4000 characters"),
    ],
)
def test_what_is_wrong_is_told_and_the_question_stays(
    cast: Cast, form: dict[str, str], told: str
) -> None:
    answer = signed_in(cast.bob).post("/explore/views", {"query": QUERY, **form})
    assert answer.status_code == 422
    assert told in answer.content.decode()
    if "query" not in form:
        assert "status=failed&amp;by=key&amp;measure=prefill" in answer.content.decode()


def test_what_cannot_be_read_is_not_saved_and_there_is_a_bound(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "VIEWS_MAX", 2)
    bob = signed_in(cast.bob)
    _save(bob, name="a", query="by=nothing&next=https://example.org&by=pool")
    assert "example" not in _view(cast, "a").query
    _save(bob, name="b")
    assert "You have saved 2 views" in _save(bob, name="c")
    assert "is saved for you" in _save(bob, name="b")
    assert "is saved for you" in _save(signed_in(cast.alice), name="c")
