"""Which organization a session shows: it never changes by itself, and no form lands in another."""

from __future__ import annotations

import pytest

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.tenants.models import Organization
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.services import organization_create
from frontend.shared.access import SESSION_KEY
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in

JSON = "application/json"


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def _first_by_name(cast: Cast) -> Organization:
    """One that Alice owns and that sorts before Acme."""
    return organization_create(actor=OPERATOR, name="AAA", owner=cast.alice)


def test_a_new_membership_changes_nothing_of_what_is_shown(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    assert "Acme" in alice.get("/projects").content.decode()
    _first_by_name(cast)
    alice.post("/projects/add", {"name": "pages"})
    assert rows(
        "SELECT o.name FROM projects p JOIN organizations o ON o.id = p.organization_id"
        " WHERE p.name = 'pages'"
    ) == [("Acme",)]
    # Neither does it change where the next sign-in leads.
    assert "projects of Acme" in signed_in(cast.alice).get("/projects").content.decode()


def test_a_form_of_a_page_left_behind_by_another_tab_is_refused(cast: Cast) -> None:
    alice, other = signed_in(cast.alice), _first_by_name(cast)
    alice.post("/organization", {"organization": str(cast.acme.id)})
    shown = {"organization_shown": str(cast.acme.id)}
    alice.post("/organization", {"organization": str(other.id)})
    refused = alice.post("/projects/add", {"name": "pages", **shown})
    assert refused.status_code == 409
    assert "You are now in AAA" in refused.content.decode()
    header = {"X-Organization-Shown": str(cast.acme.id)}
    assert alice.post("/projects/add", {"name": "pages"}, headers=header).status_code == 409
    assert rows("SELECT count(*) FROM projects WHERE name = 'pages'") == [(0,)]


def test_who_has_left_is_told_where_they_are_and_changes_nothing_there(cast: Cast) -> None:
    membership_set(actor=cast.charlie, organization=cast.other, user=cast.alice, role=Role.ADMIN)
    alice = signed_in(cast.alice)
    alice.post("/organization", {"organization": str(cast.other.id)})
    rows(
        "DELETE FROM memberships WHERE user_id = %s AND organization_id = %s",
        cast.alice.id,
        cast.other.id,
    )
    assert alice.post("/projects/add", {"name": "pages"}).status_code == 409
    assert rows("SELECT count(*) FROM projects WHERE name = 'pages'") == [(0,)]
    watching = signed_in(cast.alice)
    session = watching.session
    session[SESSION_KEY] = str(cast.other.id)
    session.save()
    assert "no longer a member" in watching.get("/projects").content.decode()
    assert "no longer a member" not in watching.get("/projects").content.decode()
