"""Members and projects through Django's client: invite, join, change, remove; weights for staff."""

import re

import pytest
from django.core import mail
from django.test import Client

from controlplane.core.permissions import Role
from controlplane.tenants.access import role_of
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.selectors import project_get
from tests.support.people import Cast, make_cast, signed_in

PASSWORD = "correct-horse-battery-staple"
LINK = re.compile(r'id="invitation-link">http://testserver(/invitation/[^<]+)<')


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def invite(alice: Client, email: str, role: Role = Role.DEVELOPER) -> str:
    """The path of a new invitation."""
    answer = alice.post("/members/invite", {"email": email, "role": role.value})
    assert answer.status_code == 200
    found = LINK.search(answer.content.decode())
    assert found is not None
    return found[1]


def test_a_stranger_joins_by_the_link(cast: Cast) -> None:
    path = invite(signed_in(cast.alice), "dora@example.org")
    dora = Client()
    text = dora.get(path).content.decode()
    assert "Join Acme" in text and "dora@example.org" in text
    answer = dora.post(path, {"password": "short", "again": "short"})
    assert answer.status_code == 422
    answer = dora.post(path, {"password": PASSWORD, "again": PASSWORD})
    assert answer.headers["Location"] == "/"
    assert "Acme" in dora.get("/").content.decode()
    assert Client().get(path).status_code == 410


def test_the_link_is_shown_once_and_mailed_where_mail_is_set_up(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = signed_in(cast.alice)
    path = invite(alice, "dora@example.org")
    assert mail.outbox == []
    page = alice.get("/members").content.decode()
    assert "dora@example.org" in page and path not in page
    monkeypatch.setattr("django.conf.settings.EMAIL_HOST", "mail.internal")
    invite(alice, "erin@example.org")
    (sent,) = mail.outbox
    assert sent.recipients() == ["erin@example.org"]
    assert "http://testserver/invitation/" in sent.body


def test_an_account_joins_only_as_itself(cast: Cast) -> None:
    path = invite(signed_in(cast.alice), "charlie@example.org", Role.VIEWER)
    assert "has an account" in Client().get(path).content.decode()
    bob = signed_in(cast.bob)
    assert "another person" in bob.get(path).content.decode()
    bob.post(path)
    assert role_of(cast.charlie, cast.acme.id) is None
    answer = signed_in(cast.charlie).post(path)
    assert answer.headers["Location"] == "/"
    assert role_of(cast.charlie, cast.acme.id) is Role.VIEWER


def test_roles_change_and_members_go(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    key = apikey_create(actor=cast.bob, project=cast.project, label="bobs robot").key
    alice.post(f"/members/{cast.bob.id.hex}/role", {"role": "finance"})
    assert role_of(cast.bob, cast.acme.id) is Role.FINANCE
    alice.post(f"/members/{cast.alice.id.hex}/role", {"role": "viewer"})
    assert role_of(cast.alice, cast.acme.id) is Role.OWNER
    answer = alice.post(f"/members/{cast.bob.id.hex}/remove")
    text = answer.content.decode()
    assert "bobs robot" in text and key.redacted in text
    assert role_of(cast.bob, cast.acme.id) is None
    assert alice.post(f"/members/{cast.charlie.id.hex}/remove").status_code == 404


def test_only_managers_see_members_and_owners_are_beyond_admins(cast: Cast) -> None:
    assert signed_in(cast.bob).get("/members").status_code == 403
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.ADMIN)
    bob = signed_in(cast.bob)
    text = bob.get("/members").content.decode()
    assert f"/members/{cast.alice.id.hex}/remove" not in text
    assert bob.post(f"/members/{cast.alice.id.hex}/remove").status_code == 403
    answer = bob.post("/members/invite", {"email": "x@example.org", "role": "owner"})
    assert answer.status_code == 422


def test_projects_are_made_and_changed(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    alice.post("/projects/add", {"name": "search"})
    alice.post(f"/projects/{cast.project.id.hex}", {"name": "shop", "safety_mode": "flag"})
    changed = project_get(user=cast.bob, project_id=cast.project.id)
    assert (changed.name, changed.safety_mode) == ("shop", "flag")
    text = alice.get("/projects").content.decode()
    assert "search" in text and "shop" in text
    alice.post(f"/projects/{cast.project.id.hex}", {"name": "search", "safety_mode": "flag"})
    assert project_get(user=cast.bob, project_id=cast.project.id).name == "shop"
    bob = signed_in(cast.bob)
    assert "data-opens" not in bob.get("/projects").content.decode()
    assert bob.post("/projects/add", {"name": "x"}).status_code == 403
    assert alice.post(f"/projects/{cast.other_project.id.hex}").status_code == 404


def test_staff_weigh_projects_of_all_organizations(cast: Cast) -> None:
    path = f"/shares/{cast.acme.id.hex}/{cast.project.id.hex}"
    assert signed_in(cast.alice).post(path, {"weight": "9"}).status_code == 403
    stella = signed_in(cast.stella)
    text = stella.get("/shares").content.decode()
    assert "Acme" in text and "Other" in text
    stella.post(path, {"weight": "9"})
    for wrong in ("0", "101", "x", "-1", "٣"):
        stella.post(path, {"weight": wrong})
    assert project_get(user=cast.alice, project_id=cast.project.id).weight == 9


def test_programs_do_what_pages_do(cast: Cast) -> None:
    alice, root = signed_in(cast.alice), f"/api/organizations/{cast.acme.id}"
    made = alice.post(
        f"{root}/invitations",
        {"email": "dora@example.org", "role": "viewer"},
        content_type="application/json",
    )
    assert made.status_code == 201
    assert Client().get(made.json()["path"]).status_code == 200
    listed = alice.get(f"{root}/invitations").json()["data"]
    assert [row["email"] for row in listed] == ["dora@example.org"]
    assert "path" not in listed[0]
    ended = alice.delete(f"{root}/invitations/{listed[0]['id']}").json()
    assert ended["changed"] is True
    changed = alice.put(
        f"{root}/members/{cast.bob.id}", {"role": "finance"}, content_type="application/json"
    )
    assert changed.json()["role"] == "finance"
    wrong = alice.put(
        f"{root}/members/{cast.bob.id}", {"role": "boss"}, content_type="application/json"
    )
    assert list(wrong.json()["error"]["fields"]) == ["role"]
    assert alice.delete(f"{root}/members/{cast.bob.id}").json()["keys_left"] == []
    project = alice.post(f"{root}/projects", {"name": "ads"}, content_type="application/json")
    assert project.status_code == 201
    one = f"{root}/projects/{project.json()['id']}"
    patched = alice.patch(one, {"safety_mode": "flag"}, content_type="application/json").json()
    assert (patched["name"], patched["safety_mode"], patched["keeps_days"]) == ("ads", "flag", 0)
    body = {"weight": 7}
    refused = alice.put(f"{one}/weight", body, content_type="application/json")
    assert refused.status_code == 403
    stella = signed_in(cast.stella)
    assert stella.put(f"{one}/weight", body, content_type="application/json").json()["weight"] == 7
    assert signed_in(cast.charlie).get(f"{root}/members").status_code == 404
