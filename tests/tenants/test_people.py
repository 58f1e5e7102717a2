"""Members: their end is at once and told; the last owner stays; accounts close."""

from io import StringIO

import pyotp
import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.core.management import CommandError, call_command

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Action, Role
from controlplane.tenants.access import require
from controlplane.tenants.keys import apikey_create, apikey_revoke
from controlplane.tenants.models import Membership, User
from controlplane.tenants.people.selectors import member_get, member_list
from controlplane.tenants.people.services import membership_end, membership_set, user_deactivate
from controlplane.tenants.selectors import organization_list
from controlplane.tenants.sign_in.factors import app_add, app_secret, has_factors
from tests.support.people import Cast, make_cast, signed_in


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def membership(cast: Cast, user: User) -> Membership:
    """A member of Acme, as Alice sees them."""
    return member_get(actor=cast.alice, organization_id=cast.acme.id, user_id=user.id)


def test_a_removed_member_has_no_access_and_their_keys_are_told(cast: Cast) -> None:
    kept = apikey_create(actor=cast.bob, project=cast.project, label="kept").key
    gone = apikey_create(actor=cast.bob, project=cast.project, label="gone").key
    apikey_revoke(actor=cast.bob, key=gone)
    left = membership_end(actor=cast.alice, membership=membership(cast, cast.bob))
    assert left == [kept]
    assert organization_list(user=cast.bob) == []
    with pytest.raises(ObjectDoesNotExist):
        require(cast.bob, Action.REQUEST_VIEW, cast.acme.id)
    with pytest.raises(ObjectDoesNotExist):
        membership(cast, cast.bob)
    assert User.objects.get(id=cast.bob.id).tokens_from is not None


def test_the_last_owner_stays(cast: Cast) -> None:
    alice = membership(cast, cast.alice)
    with pytest.raises(ValidationError) as caught:
        membership_end(actor=cast.alice, membership=alice)
    assert list(caught.value.message_dict) == ["role"]
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.OWNER)
    membership_end(actor=cast.bob, membership=alice)
    assert organization_list(user=cast.alice) == []


def test_who_may_remove_whom(cast: Cast) -> None:
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.charlie, role=Role.ADMIN)
    with pytest.raises(PermissionDenied):
        membership_end(actor=cast.charlie, membership=membership(cast, cast.alice))
    with pytest.raises(PermissionDenied):
        membership_end(actor=cast.bob, membership=membership(cast, cast.charlie))
    with pytest.raises(PermissionDenied):
        member_list(actor=cast.bob, organization_id=cast.acme.id)
    membership_end(actor=cast.charlie, membership=membership(cast, cast.bob))


def test_a_closed_account_is_out_everywhere(cast: Cast) -> None:
    browser = signed_in(cast.bob)
    assert browser.get("/").status_code == 200
    with pytest.raises(PermissionDenied):
        user_deactivate(actor=cast.alice, user=cast.bob)
    assert user_deactivate(actor=OPERATOR, user=cast.bob)
    assert not user_deactivate(actor=OPERATOR, user=cast.bob)
    assert browser.get("/").headers["Location"].startswith("/sign-in")
    with pytest.raises(PermissionDenied):
        require(cast.bob, Action.REQUEST_VIEW, cast.acme.id)
    assert User.objects.get(id=cast.bob.id).tokens_from is not None


def test_the_operator_closes_accounts_and_resets_factors(cast: Cast) -> None:
    secret = app_secret()
    app_add(user=cast.bob, secret=secret, code=pyotp.TOTP(secret).now())
    out = StringIO()
    call_command("account_set", "bob@example.org", "--reset-factors", "--close", stdout=out)
    assert out.getvalue().splitlines() == ["1 second factors removed.", "Account closed."]
    assert not has_factors(user=cast.bob)
    assert not User.objects.get(id=cast.bob.id).is_active
    for wrong in (["nobody@example.org", "--close"], ["bob@example.org"]):
        with pytest.raises(CommandError):
            call_command("account_set", *wrong)
