"""The matrix: every action is somebody's, and strangers and outsiders get nothing."""

import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import (
    GRANTABLE,
    MATRIX,
    PLATFORM_ACTIONS,
    Action,
    Role,
    role_allows,
)
from controlplane.tenants.access import require
from controlplane.tenants.people.services import membership_set
from tests.support.people import make_cast


def test_every_action_is_in_the_matrix_or_of_the_platform() -> None:
    covered = frozenset[Action]().union(*MATRIX.values())
    assert covered | PLATFORM_ACTIONS == frozenset(Action)
    assert not covered & PLATFORM_ACTIONS
    assert set(MATRIX) == set(GRANTABLE) == set(Role)


def test_no_role_may_do_more_than_an_owner() -> None:
    assert all(actions <= MATRIX[Role.OWNER] for actions in MATRIX.values())
    assert not any(role_allows(None, action) for action in Action)


@pytest.mark.usefixtures("database")
def test_require_follows_the_matrix_for_each_role() -> None:
    cast = make_cast()
    for role in Role:
        membership_set(actor=OPERATOR, organization=cast.acme, user=cast.bob, role=role)
        for action in set(Action) - PLATFORM_ACTIONS:
            if role_allows(role, action):
                require(cast.bob, action, cast.acme.id)
            else:
                with pytest.raises(PermissionDenied):
                    require(cast.bob, action, cast.acme.id)


@pytest.mark.usefixtures("database")
def test_platform_actions_are_for_active_staff_and_the_operator() -> None:
    cast = make_cast()
    for action in PLATFORM_ACTIONS:
        require(cast.stella, action)
        require(OPERATOR, action)
        with pytest.raises(PermissionDenied):
            require(cast.alice, action)
    cast.stella.is_active = False
    with pytest.raises(PermissionDenied):
        require(cast.stella, Action.FLEET_MANAGE)


@pytest.mark.usefixtures("database")
def test_a_strangers_organization_does_not_exist() -> None:
    cast = make_cast()
    for action in set(Action) - PLATFORM_ACTIONS:
        with pytest.raises(ObjectDoesNotExist):
            require(cast.charlie, action, cast.acme.id)
