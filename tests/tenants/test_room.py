"""What one organization may have, and how fast it may change: bounds that hold under races."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connections

from controlplane.core.audit.entries import OPERATOR, TooManyChanges
from controlplane.core.permissions import Role, organization_scope
from controlplane.tenants.keys import apikey_create, apikey_revoke, apikey_rotate
from controlplane.tenants.models import ApiKey, Membership, Project
from controlplane.tenants.people.services import (
    invitation_accept,
    invitation_create,
    membership_set,
)
from controlplane.tenants.services import project_create, project_rename
from tests.support.people import Cast, make_cast, signed_in

AT_ONCE = 6


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def at_once(work: Callable[[int], object]) -> list[bool]:
    """Whether each of some calls at the same moment was taken, and not refused for want of room."""

    def one(number: int) -> bool:
        try:
            work(number)
        except ValidationError as error:
            assert "reached the limit" in str(error.messages)
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(one, range(AT_ONCE)))


@pytest.mark.parametrize("bound", ["KEYS_PER_ORGANIZATION_MAX", "KEYS_PER_PROJECT_MAX"])
def test_living_keys_are_bounded_however_many_make_one_at_once(
    cast: Cast, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, bound, 3)
    made = at_once(lambda n: apikey_create(actor=cast.alice, project=cast.project, label=str(n)))
    assert sum(made) == 3
    with organization_scope([cast.acme.id]):
        keys = list(ApiKey.objects.all())
    assert len(keys) == 3
    # A rotation that leaves both alive is one key more; one that ends the old at once is not.
    with pytest.raises(ValidationError) as refused:
        apikey_rotate(actor=cast.alice, key=keys[0], overlap_s=1)
    assert list(refused.value.message_dict) == ["overlap_s"]
    new = apikey_rotate(actor=cast.alice, key=keys[0], overlap_s=0).key
    assert apikey_revoke(actor=cast.alice, key=new)
    apikey_create(actor=cast.alice, project=cast.project, label="in its place")
    # Nobody else has less room for that.
    apikey_create(actor=cast.charlie, project=cast.other_project, label="k")


def test_projects_are_bounded(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "PROJECTS_PER_ORGANIZATION_MAX", 3)
    made = at_once(lambda n: project_create(actor=cast.alice, organization=cast.acme, name=str(n)))
    assert sum(made) == 2
    with organization_scope([cast.acme.id]):
        assert Project.objects.count() == 3


def test_members_are_bounded_together_with_those_invited(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "MEMBERS_PER_ORGANIZATION_MAX", 3)
    links = []

    def invite(number: int) -> None:
        email = cast.charlie.email if number == 0 else f"new{number}@example.org"
        links.append(
            invitation_create(
                actor=cast.alice, organization=cast.acme, email=email, role=Role.VIEWER
            )
        )

    assert sum(at_once(invite)) == 1
    with pytest.raises(ValidationError, match="reached the limit"):
        membership_set(actor=cast.alice, organization=cast.acme, user=cast.stella, role=Role.VIEWER)
    # Who is a member already may get another role, and who was invited still comes in.
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.VIEWER)
    ((invitation, token),) = links
    if invitation.email == cast.charlie.email:
        invitation_accept(token=token, user=cast.charlie)
        with organization_scope([cast.acme.id]):
            assert Membership.objects.count() == 3


def test_one_actor_changes_only_so_much_within_a_minute(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "CHANGES_PER_MIN_MAX", 5)
    names = (f"name {number}" for number in range(100))
    with pytest.raises(TooManyChanges):
        for name in names:
            project_rename(actor=cast.alice, project=cast.project, name=name)
    with organization_scope([cast.acme.id]):
        before = Project.objects.get(id=cast.project.id).name
    browser = signed_in(cast.alice)
    refused = browser.post("/projects/add", {"name": "one more"})
    assert refused.status_code == 429 and refused["Retry-After"] == "60"
    path = f"/api/organizations/{cast.acme.id}/projects"
    refused = browser.post(path, {"name": "one more"}, content_type="application/json")
    assert refused.status_code == 429 and refused["Retry-After"] == "60"
    assert "Too many changes" in refused.json()["error"]["message"]
    with organization_scope([cast.acme.id]):
        assert Project.objects.get().name == before
    # Neither others of the organization nor the operator wait for it.
    apikey_create(actor=cast.bob, project=cast.project, label="k")
    project_rename(actor=OPERATOR, project=cast.project, name="by the operator")
