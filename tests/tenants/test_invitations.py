"""Invitations: one link, once, for one address, while its maker may give the role."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import connection
from django.utils import timezone

from controlplane.core.permissions import Role, organization_scope
from controlplane.tenants.access import role_of
from controlplane.tenants.models import Invitation, User
from controlplane.tenants.people import services
from controlplane.tenants.people.services import (
    BadInvitation,
    invitation_accept,
    invitation_create,
    invitation_list,
    invitation_of,
    invitation_sign_up,
    invitation_withdraw,
    membership_set,
)
from controlplane.tenants.selectors import organization_list
from tests.support.people import Cast, make_cast

PASSWORD = "a long enough passphrase"


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def invite(cast: Cast, email: str = "dora@example.org", role: Role = Role.DEVELOPER) -> str:
    """A link's token, made by Alice for Acme."""
    return invitation_create(actor=cast.alice, organization=cast.acme, email=email, role=role)[1]


def test_a_link_makes_the_account_and_the_member_once(cast: Cast) -> None:
    token = invite(cast, " Dora@Example.org ")
    with pytest.raises(ValidationError) as caught:
        invitation_sign_up(token=token, password="short")
    assert list(caught.value.message_dict) == ["password"]
    dora = invitation_sign_up(token=token, password=PASSWORD)
    assert dora.email == "dora@example.org" and dora.check_password(PASSWORD)
    assert not dora.is_staff
    assert role_of(dora, cast.acme.id) is Role.DEVELOPER
    assert organization_list(user=dora) == [cast.acme]
    for again in (lambda: invitation_sign_up(token=token, password=PASSWORD),
                  lambda: invitation_accept(token=token, user=dora)):  # fmt: skip
        with pytest.raises(BadInvitation):
            again()


def test_who_has_an_account_accepts_with_it_and_nobody_else_does(cast: Cast) -> None:
    token = invite(cast, "charlie@example.org", Role.FINANCE)
    with pytest.raises(BadInvitation):
        invitation_accept(token=token, user=cast.bob)
    with pytest.raises(BadInvitation):
        invitation_sign_up(token=token, password=PASSWORD)
    assert invitation_accept(token=token, user=cast.charlie) == cast.acme
    assert role_of(cast.charlie, cast.acme.id) is Role.FINANCE


def test_only_a_hash_of_the_link_is_kept(cast: Cast) -> None:
    token = invite(cast)
    with organization_scope([cast.acme.id]):
        kept = Invitation.objects.get()
    assert token.encode() not in bytes(kept.digest)
    assert len(bytes(kept.digest)) == 32


def test_a_new_link_ends_the_old_one_and_time_or_a_withdrawal_ends_both(cast: Cast) -> None:
    old, new = invite(cast), invite(cast)
    assert invitation_of(token=old) is None
    found = invitation_of(token=new)
    assert found is not None
    assert invitation_withdraw(actor=cast.alice, invitation=found)
    assert not invitation_withdraw(actor=cast.alice, invitation=found)
    assert invitation_of(token=new) is None
    late = invite(cast)
    with organization_scope([cast.acme.id]):
        Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(BadInvitation):
        invitation_sign_up(token=late, password=PASSWORD)


def test_a_link_of_one_organization_is_none_of_another(cast: Cast) -> None:
    _, _, secret = invite(cast).partition(".")
    assert invitation_of(token=f"{cast.other.id.hex}.{secret}") is None


@pytest.mark.parametrize("token", ["", "x", ".", "\x00", "\ud800" * 32, "f" * 32, "a" * 10_000])
def test_nonsense_is_no_invitation(database: str, token: str) -> None:
    assert invitation_of(token=token) is None


def test_who_may_invite_whom(cast: Cast) -> None:
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.ADMIN)
    with pytest.raises(PermissionDenied):
        invitation_create(
            actor=cast.bob, organization=cast.acme, email="x@example.org", role=Role.OWNER
        )
    with pytest.raises(ObjectDoesNotExist):
        invitation_create(
            actor=cast.charlie, organization=cast.acme, email="x@example.org", role=Role.VIEWER
        )
    with pytest.raises(ValidationError) as caught:
        invite(cast, "bob@example.org")
    assert list(caught.value.message_dict) == ["email"]
    with pytest.raises(ObjectDoesNotExist):
        invitation_list(actor=cast.charlie, organization_id=cast.acme.id)


def test_a_maker_who_may_no_more_has_invited_nobody(cast: Cast) -> None:
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.ADMIN)
    _, token = invitation_create(
        actor=cast.bob, organization=cast.acme, email="dora@example.org", role=Role.ADMIN
    )
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.DEVELOPER)
    with pytest.raises(BadInvitation):
        invitation_sign_up(token=token, password=PASSWORD)
    assert not User.objects.filter(email="dora@example.org").exists()


def test_open_invitations_are_bounded(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "OPEN_MAX", 2)
    for name in ("a", "b"):
        invite(cast, f"{name}@example.org")
    with pytest.raises(ValidationError, match="open invitations"):
        invite(cast, "c@example.org")
    # Another link to somebody invited takes the place of the first.
    invite(cast, "b@example.org")


def test_of_many_at_once_one_wins(cast: Cast) -> None:
    token = invite(cast)

    def attempt(_: int) -> bool:
        try:
            invitation_sign_up(token=token, password=PASSWORD)
        except BadInvitation:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(attempt, range(4))) == 1
