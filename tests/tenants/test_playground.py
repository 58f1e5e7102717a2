"""Playground tokens: minted for members, ten minutes, naming what they may spend from."""

import uuid

import pytest
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError

from controlplane.core.permissions import Role
from controlplane.kernel.clock import wall_s
from controlplane.kernel.keys.playtoken import LIFETIME_S, open_grant
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.services import playground_token_create
from tests.support.people import make_cast

pytestmark = pytest.mark.usefixtures("database")


def test_a_token_names_user_project_models_and_budgets() -> None:
    cast = make_cast()
    budget = apikey_create(actor=cast.alice, project=cast.project, label="k").key.id
    token = playground_token_create(
        actor=cast.bob, project=cast.project, models=["m"], budgets=[budget]
    )
    grant = open_grant(token, settings.PLAYGROUND_TOKEN_KEY)
    assert (grant.user, grant.organization) == (cast.bob.id.hex, cast.acme.id.hex)
    assert (grant.project, grant.models) == (cast.project.id.hex, frozenset({"m"}))
    assert grant.budgets == (budget.hex,)
    assert 0 < grant.expires_at_s - wall_s() <= LIFETIME_S


def test_not_for_strangers_nor_for_roles_without_the_right() -> None:
    cast = make_cast()
    with pytest.raises(ObjectDoesNotExist):
        playground_token_create(actor=cast.charlie, project=cast.project)
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.VIEWER)
    with pytest.raises(PermissionDenied):
        playground_token_create(actor=cast.bob, project=cast.project)


def test_only_budgets_of_the_same_organization_may_be_named() -> None:
    cast = make_cast()
    foreign = apikey_create(actor=cast.charlie, project=cast.other_project, label="k").key.id
    wrong = ([foreign], [cast.other.id], [cast.other_project.id], [cast.project.id] * 9)
    for budgets in (*wrong, [uuid.uuid4()]):
        with pytest.raises(ValidationError) as caught:
            playground_token_create(actor=cast.bob, project=cast.project, budgets=budgets)
        assert list(caught.value.message_dict) == ["budgets"]
