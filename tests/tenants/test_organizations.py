"""Organizations, projects and members: names, roles, and the last owner."""

import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.tenants.access import role_of
from controlplane.tenants.audit.selectors import audit_search
from controlplane.tenants.people.selectors import member_list
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.selectors import (
    organization_get,
    organization_list,
    project_get,
    project_list,
)
from controlplane.tenants.services import (
    organization_create,
    project_create,
    project_update,
    project_weigh,
)
from tests.support.people import make_cast

pytestmark = pytest.mark.usefixtures("database")


def test_each_sees_only_their_own() -> None:
    cast = make_cast()
    assert organization_list(user=cast.bob) == [cast.acme]
    assert project_list(user=cast.bob) == [cast.project]
    assert project_list(user=cast.charlie) == [cast.other_project]
    assert project_list(user=cast.stella) == []
    assert role_of(cast.charlie, cast.acme.id) is None
    with pytest.raises(ObjectDoesNotExist):
        organization_get(user=cast.charlie, organization_id=cast.acme.id)
    with pytest.raises(ObjectDoesNotExist):
        project_get(user=cast.charlie, project_id=cast.project.id)
    with pytest.raises(ObjectDoesNotExist):
        member_list(actor=cast.charlie, organization_id=cast.acme.id)


def test_only_staff_make_organizations() -> None:
    cast = make_cast()
    with pytest.raises(PermissionDenied):
        organization_create(actor=cast.alice, name="Mine", owner=cast.alice)
    made = organization_create(actor=cast.stella, name="New", owner=cast.bob)
    assert made in organization_list(user=cast.bob)


def test_project_names_are_unique_in_an_organization() -> None:
    cast = make_cast()
    with pytest.raises(ValidationError) as caught:
        project_create(actor=cast.alice, organization=cast.acme, name=" web ")
    assert list(caught.value.message_dict) == ["name"]
    project_create(actor=cast.charlie, organization=cast.other, name="web")
    with pytest.raises(PermissionDenied):
        project_create(actor=cast.bob, organization=cast.acme, name="more")


def test_projects_start_private_and_unfiltered() -> None:
    cast = make_cast()
    assert (cast.project.safety_mode, cast.project.allow_content_logging) == ("off", False)
    project_update(
        actor=cast.alice, project=cast.project, safety_mode="block", allow_content_logging=False
    )
    assert project_get(user=cast.bob, project_id=cast.project.id).safety_mode == "block"
    with pytest.raises(ValidationError) as caught:
        project_update(
            actor=cast.alice, project=cast.project, safety_mode="x", allow_content_logging=False
        )
    assert list(caught.value.message_dict) == ["safety_mode"]
    with pytest.raises(ValidationError) as caught:
        project_update(actor=cast.alice, project=cast.project, cache_minutes=-1)
    assert list(caught.value.message_dict) == ["cache_minutes"]


def test_only_who_runs_the_installation_weighs_tenants_against_each_other() -> None:
    cast = make_cast()
    assert cast.project.weight == 1
    with pytest.raises(PermissionDenied):
        project_weigh(actor=cast.alice, project=cast.project, weight=100)
    project_weigh(actor=OPERATOR, project=cast.project, weight=3)
    assert project_get(user=cast.bob, project_id=cast.project.id).weight == 3
    newest = audit_search(actor=cast.alice, organization_id=cast.acme.id).rows[0]
    assert (newest.action, newest.detail) == ("project.weigh", {"weight": 3})
    for wrong in (0, 101):
        with pytest.raises(ValidationError) as caught:
            project_weigh(actor=OPERATOR, project=cast.project, weight=wrong)
        assert list(caught.value.message_dict) == ["weight"]


def test_an_organization_keeps_an_owner() -> None:
    cast = make_cast()
    with pytest.raises(ValidationError) as caught:
        membership_set(actor=cast.alice, organization=cast.acme, user=cast.alice, role=Role.VIEWER)
    assert list(caught.value.message_dict) == ["role"]


def test_nobody_grants_more_than_they_may() -> None:
    cast = make_cast()
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.ADMIN)
    with pytest.raises(PermissionDenied):
        membership_set(actor=cast.bob, organization=cast.acme, user=cast.bob, role=Role.OWNER)
    with pytest.raises(PermissionDenied):
        membership_set(actor=cast.bob, organization=cast.acme, user=cast.alice, role=Role.VIEWER)
    membership_set(actor=cast.bob, organization=cast.acme, user=cast.charlie, role=Role.FINANCE)
    members = member_list(actor=cast.bob, organization_id=cast.acme.id)
    assert {each.membership.user: each.membership.role for each in members} == {
        cast.alice: "owner",
        cast.bob: "admin",
        cast.charlie: "finance",
    }
