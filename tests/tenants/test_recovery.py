"""Lost passwords: the mailed link and the administrator's; what they open, and for whom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pyotp
import pytest
from django.conf import settings
from django.core import mail
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from controlplane.composed.organizations.services import organization_open
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.tenants.models import Membership, User
from controlplane.tenants.people.selectors import member_get
from controlplane.tenants.people.services import (
    invitation_accept,
    invitation_create,
    membership_set,
    user_deactivate,
)
from controlplane.tenants.services import organization_create
from controlplane.tenants.sign_in import recovery
from controlplane.tenants.sign_in.accounts import setup_link_user
from controlplane.tenants.sign_in.factors import app_add, app_secret
from controlplane.tenants.sign_in.recovery import LINKS_MAX, MAILS_MAX, member_link_create
from frontend.people import sign_in_views as page
from tests.support.money import rows
from tests.support.people import Cast, make_cast, make_steve, signed_in

NEW = "another-horse-battery-8"


@pytest.fixture
def cast(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cast]:
    monkeypatch.setattr(settings, "EMAIL_HOST", "mail.internal")
    made = make_cast()
    for user in (made.bob, made.stella):
        user.set_password("correct-horse-battery-9")
        user.save()
    yield made
    wait_for_mails()


def wait_for_mails() -> None:
    """Until all are sent; their threads hold connections to the test's database."""
    for _ in range(MAILS_MAX):
        assert recovery._mails.acquire(timeout=30)
    for _ in range(MAILS_MAX):
        recovery._mails.release()


def ask(email: str) -> tuple[int, str]:
    """What the page says, once all is sent."""
    answer = Client().post("/sign-in/forgot", {"email": email})
    wait_for_mails()
    return answer.status_code, answer.content.decode()


def link() -> str:
    """The path in the latest mail."""
    found = re.search(r"http://testserver(/setup/\S+)", str(mail.outbox[-1].body))
    assert found is not None
    return found[1]


def audited() -> list[tuple[Any, ...]]:
    """Who made links, in which organization, from which address."""
    return rows(
        "SELECT actor_label, organization_id, address FROM audit_entries"
        " WHERE action = 'setup_link.create' ORDER BY id"
    )


def set_password(path: str) -> Any:
    """Set a new password there; the browser that did."""
    browser = Client()
    browser.post(path, {"password": NEW, "again": NEW})
    return browser


def test_a_link_comes_by_mail_and_ends_other_sessions(cast: Cast) -> None:
    elsewhere = signed_in(cast.bob)
    elsewhere.get("/account")
    assert ask(cast.bob.email)[0] == 200
    (sent,) = mail.outbox
    assert sent.recipients() == [cast.bob.email]
    path = link()
    browser = set_password(path)
    assert browser.get("/account").status_code == 200
    assert User.objects.get(id=cast.bob.id).check_password(NEW)
    assert elsewhere.get("/account").status_code == 302
    assert Client().get(path).status_code == 410
    (row,) = audited()
    assert row == ("anonymous", None, "127.0.0.1")


@pytest.mark.parametrize("pages", ["", "https://pages.example.org"])
def test_a_stranger_decides_nothing_of_a_links_address(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, pages: str
) -> None:
    monkeypatch.setattr(settings, "PAGES_URL", pages)
    Client().post("/sign-in/forgot", {"email": cast.bob.email}, headers={"host": "testserver:81"})
    wait_for_mails()
    assert f"{pages or 'http://testserver'}/setup/" in str(mail.outbox[-1].body)


def test_nobody_learns_who_has_an_account(cast: Cast) -> None:
    user_deactivate(actor=OPERATOR, user=cast.stella)
    assert not cast.charlie.has_usable_password()
    told = {ask(one.email) for one in (cast.bob, cast.stella, cast.charlie)}
    told.add(ask("nobody@example.org"))
    assert len(told) == 1
    assert [one.recipients() for one in mail.outbox] == [[cast.bob.email]]


def test_a_second_factor_is_asked_for_all_the_same(cast: Cast) -> None:
    secret = app_secret()
    app_add(user=cast.bob, secret=secret, code=pyotp.TOTP(secret).now())
    ask(cast.bob.email)
    browser = set_password(link())
    assert browser.get("/account").status_code == 302
    assert "_auth_user_id" not in browser.session


def test_an_account_gets_a_few_links_an_hour(cast: Cast) -> None:
    for _ in range(LINKS_MAX + 2):
        assert ask(cast.bob.email)[0] == 200
    assert len(mail.outbox) == LINKS_MAX


def test_an_address_may_ask_some_times_an_hour(
    cast: Cast, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "ASKS_MAX", 1)
    assert [ask("nobody@example.org")[0] for _ in range(2)] == [200, 429]


def test_without_mail_there_is_no_such_page(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Forgot your password?" in Client().get("/sign-in").content.decode()
    monkeypatch.setattr(settings, "EMAIL_HOST", "")
    assert "Forgot your password?" not in Client().get("/sign-in").content.decode()
    assert Client().get("/sign-in/forgot").status_code == 404


def test_an_owner_makes_a_members_link_on_the_page(cast: Cast) -> None:
    answer = signed_in(cast.alice).post(f"/members/{cast.bob.id.hex}/link")
    found = re.search(r"/setup/[\w-]+", answer.content.decode())
    assert found is not None and "no-store" in answer.headers["Cache-Control"]
    assert set_password(found[0]).get("/account").status_code == 200
    (row,) = audited()
    assert row == (cast.alice.email, cast.acme.id, "127.0.0.1")


def test_nobody_makes_a_link_to_more_than_they_manage(cast: Cast) -> None:
    def links(actor: User, user: User) -> bool:
        found = member_get(actor=cast.alice, organization_id=cast.acme.id, user_id=user.id)
        try:
            return bool(member_link_create(actor=actor, membership=found))
        except PermissionDenied:
            return False

    admin = cast.charlie
    membership_set(actor=OPERATOR, organization=cast.acme, user=admin, role=Role.ADMIN)
    membership_set(actor=OPERATOR, organization=cast.acme, user=cast.stella, role=Role.VIEWER)
    assert links(admin, cast.bob) and links(cast.alice, cast.bob)
    # An owner, staff, and an account that owns another organization.
    assert not links(admin, cast.alice)
    assert not links(cast.alice, cast.stella)
    assert not links(cast.alice, admin)
    assert links(cast.stella, admin)
    assert not links(cast.stella, cast.stella)
    answer = signed_in(cast.alice).post(f"/members/{admin.id.hex}/link", follow=True)
    assert "has permissions that you cannot manage" in answer.content.decode()


def test_staff_cannot_become_the_colleague_who_approves(cast: Cast) -> None:
    steve = make_steve()
    made = organization_open(actor=cast.stella, name="Trap", owner=steve.email)
    assert made.token is None
    page = signed_in(cast.stella)
    found = Membership(organization=made.organization, user=steve, role=Role.OWNER.value)
    with pytest.raises(PermissionDenied):
        member_link_create(actor=cast.stella, membership=found)
    path = reverse("organization_link", args=[made.organization.id.hex, steve.id.hex])
    assert page.post(path).status_code == 403
    assert path not in page.get("/organizations").content.decode()
    answer = page.post(
        f"/api/organizations/{made.organization.id}/members/{steve.id}/password-link"
    )
    assert answer.status_code == 403
    assert audited() == [] and mail.outbox == []
    assert member_link_create(actor=OPERATOR, membership=found)


def test_the_account_is_told_of_links_that_others_make(cast: Cast) -> None:
    signed_in(cast.alice).post(f"/members/{cast.bob.id.hex}/link")
    (sent,) = mail.outbox
    assert sent.recipients() == [cast.bob.email]
    assert cast.alice.email in str(sent.body) and "/setup/" not in str(sent.body)
    call_command("setup_link", cast.bob.email, stdout=StringIO(), stderr=StringIO())
    assert "operator" in str(mail.outbox[1].body)


@pytest.mark.parametrize("way", ["role", "invitation", "organization"])
def test_a_members_link_ends_once_the_account_may_do_more(cast: Cast, way: str) -> None:
    bob = member_get(actor=cast.alice, organization_id=cast.acme.id, user_id=cast.bob.id)
    token = member_link_create(actor=cast.alice, membership=bob)
    assert setup_link_user(token=token) == cast.bob
    if way == "role":
        membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.ADMIN)
    elif way == "invitation":
        _, invited = invitation_create(
            actor=cast.charlie, organization=cast.other, email=cast.bob.email, role=Role.OWNER
        )
        invitation_accept(token=invited, user=cast.bob)
    else:
        organization_create(actor=cast.stella, name="New", owner=cast.bob)
    assert setup_link_user(token=token) is None


def test_a_link_of_staff_outlives_a_new_role(cast: Cast) -> None:
    bob = member_get(actor=cast.alice, organization_id=cast.acme.id, user_id=cast.bob.id)
    token = member_link_create(actor=cast.stella, membership=bob)
    organization_create(actor=cast.stella, name="New", owner=cast.bob)
    assert setup_link_user(token=token) == cast.bob
