"""Accounts: no usable password at first, one link to set it, used once and not for long."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.conf import global_settings
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from controlplane.core.audit.entries import OPERATOR
from controlplane.tenants.models import SetupLink, User
from controlplane.tenants.sign_in.accounts import (
    BadSetupLink,
    setup_link_consume,
    setup_link_create,
    setup_link_user,
    user_create,
)
from tests.support.people import make_cast

pytestmark = pytest.mark.usefixtures("database")
PASSWORD = "a long enough passphrase"


def test_a_new_account_opens_nothing() -> None:
    user = user_create(actor=OPERATOR, email=" Dora@Example.org ")
    assert user.email == "dora@example.org"
    assert not user.has_usable_password()
    with pytest.raises(ValidationError) as caught:
        user_create(actor=OPERATOR, email="DORA@example.org")
    assert list(caught.value.message_dict) == ["email"]
    with pytest.raises(ValidationError):
        user_create(actor=OPERATOR, email="no address")


def test_only_staff_make_accounts_and_links() -> None:
    cast = make_cast()
    with pytest.raises(PermissionDenied):
        user_create(actor=cast.alice, email="x@example.org")
    with pytest.raises(PermissionDenied):
        setup_link_create(actor=cast.alice, user=cast.bob)


@override_settings(PASSWORD_HASHERS=global_settings.PASSWORD_HASHERS)
def test_a_link_sets_the_password_once() -> None:
    cast = make_cast()
    token = setup_link_create(actor=OPERATOR, user=cast.bob)
    assert setup_link_user(token=token) == cast.bob
    with pytest.raises(ValidationError) as caught:
        setup_link_consume(token=token, password="short")
    assert list(caught.value.message_dict) == ["password"]
    setup_link_consume(token=token, password=PASSWORD)
    kept = User.objects.get(id=cast.bob.id)
    assert kept.check_password(PASSWORD) and kept.password.startswith("pbkdf2_sha256$")
    with pytest.raises(BadSetupLink):
        setup_link_consume(token=token, password=PASSWORD)


def test_a_new_link_ends_the_old_one_and_time_ends_both() -> None:
    cast = make_cast()
    old = setup_link_create(actor=OPERATOR, user=cast.bob)
    new = setup_link_create(actor=OPERATOR, user=cast.bob)
    assert setup_link_user(token=old) is None
    SetupLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert setup_link_user(token=new) is None
    with pytest.raises(BadSetupLink):
        setup_link_consume(token=new, password=PASSWORD)


@pytest.mark.parametrize("token", ["", "x", "\x00", "\ud800", "a" * 10_000])
def test_nonsense_is_no_link(token: str) -> None:
    with pytest.raises(BadSetupLink):
        setup_link_consume(token=token, password=PASSWORD)


def test_of_many_at_once_one_wins() -> None:
    cast = make_cast()
    token = setup_link_create(actor=OPERATOR, user=cast.bob)

    def attempt(_: int) -> bool:
        try:
            setup_link_consume(token=token, password=PASSWORD)
        except BadSetupLink:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(attempt, range(4))) == 1
