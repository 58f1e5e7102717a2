"""People in a browser: invite and join, an app and a passkey as second factors, sessions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields

import pyotp
import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from playwright.sync_api import Locator, Page, expect

from controlplane.tenants.sign_in.factors import factor_list, factor_remove
from tests.browser.site import PASSWORD, Site, elsewhere
from tests.browser.watch import DESK, PHONE, Watch, fits

# What is at least between two fields of a form.
GAP_PX = 8


class LocalSite(Site):
    """The same by a name: a browser makes no passkeys for an address of numbers."""

    @property
    def url(self) -> str:
        """Where the pages are."""
        return f"http://localhost:{self.port}"


@pytest.fixture(autouse=True)
def no_factors_left(site: Site) -> Iterator[None]:
    """Nobody has a second factor after a test."""
    yield

    def remove() -> None:
        for user in (site.cast.alice, site.cast.bob):
            for factor in factor_list(user=user):
                factor_remove(user=user, factor_id=factor.id)

    elsewhere(remove)


@pytest.fixture
def local(site: Site) -> LocalSite:
    return LocalSite(**{each.name: getattr(site, each.name) for each in fields(Site)})


def test_somebody_is_invited_by_keyboard_and_joins_on_a_phone(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/members")
    page.get_by_role("button", name="Invite member").focus()
    page.keyboard.press("Enter")
    page.get_by_label("E-mail address").fill("erin@example.org")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Send this link to them now")).to_be_focused()
    fits(page)
    link = page.locator("#invitation-link").inner_text()
    erin = watch.open(site, size=PHONE)
    erin.goto(link)
    fits(erin)
    erin.get_by_label("New password").fill(PASSWORD)
    erin.get_by_label("Confirm password").fill(PASSWORD)
    erin.get_by_role("button", name="Create account and join").click()
    erin.wait_for_url(f"{site.url}/")
    page.goto("/members")
    row = page.locator("tr", has=page.get_by_role("rowheader", name="erin@example.org"))
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Remove the member").click()
    expect(page.get_by_role("heading", name="Keys they created")).to_be_visible()
    watch.allowed.append("403")
    erin.goto("/requests")
    expect(erin.locator("h1")).to_have_text("You are not a member of an organization yet")


def _confirm_again() -> None:
    """All sessions have to confirm who they are, as after 15 minutes."""
    for row in Session.objects.all():
        session = SessionStore(row.session_key)
        session["confirmed_at_s"] = 0
        session.save()


@pytest.mark.parametrize(("size", "dark"), [(DESK, False), (PHONE, True)], ids=["desk", "phone"])
def test_a_form_survives_the_confirmation(
    site: Site, watch: Watch, size: tuple[int, int], dark: bool
) -> None:
    page = watch.sign_in(site, size=size, dark=dark)
    page.goto("/keys")
    label = f"kept & <{size[0]}>"
    page.get_by_role("button", name="Create key").first.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Label").fill(label)
    _parts_stand_apart(dialog)
    elsewhere(_confirm_again)
    dialog.get_by_role("button", name="Create key").press("Enter")
    expect(page.get_by_role("heading", name="Confirm it's you")).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("will continue automatically")
    fits(page)
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("#new-key")).to_contain_text("sk_sluice_")
    expect(page.get_by_text(label).first).to_be_visible()
    assert page.url == f"{site.url}/keys/create"
    # Going back leads past the page that sent it: nothing is sent twice.
    page.go_back()
    page.goto("/keys")
    expect(page.get_by_role("row", name=re.compile(label))).to_have_count(1)


def _parts_stand_apart(dialog: Locator) -> None:
    """Fields of the scopes have gaps between them, and a box stands beside its words."""
    dialog.get_by_text("Scopes, limits and budget").click()
    parts = [dialog.get_by_label(name) for name in ("Requests per minute", "Tokens per minute")]
    above, below = (part.locator("..").bounding_box() for part in parts)
    assert above and below and below["y"] - above["y"] - above["height"] >= GAP_PX
    words = dialog.get_by_text("Read-only: can list").bounding_box()
    box = dialog.get_by_label("Read-only: can list").bounding_box()
    assert words and box
    assert 0 <= box["y"] + box["height"] / 2 - words["y"] <= words["height"]


def _give_password(page: Page, email: str) -> None:
    page.goto("/sign-in")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def test_an_app_is_added_and_asked_for(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site, email="bob@example.org")
    page.goto("/account/app")
    page.get_by_text("Cannot scan? Enter the secret").click()
    secret = page.locator("code.secret").inner_text()
    page.get_by_label("Code", exact=True).fill(pyotp.TOTP(secret).now())
    page.get_by_role("button", name="Add the app").click()
    expect(page.get_by_role("heading", name="Keep these recovery codes now")).to_be_focused()
    code = page.locator("#codes").inner_text().split()[0]
    fits(page)
    second = watch.open(site, size=PHONE)
    _give_password(second, "bob@example.org")
    second.wait_for_url(f"{site.url}/sign-in/second")
    fits(second)
    second.get_by_label("Code of your authenticator app").fill(code)
    second.keyboard.press("Enter")
    second.wait_for_url(f"{site.url}/")


def test_a_passkey_is_made_and_asked_for(local: LocalSite, watch: Watch) -> None:
    page = watch.sign_in(local)
    driver = page.context.new_cdp_session(page)
    driver.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasUserVerification": True,
        "isUserVerified": True,
    }
    driver.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    page.goto("/account")
    page.get_by_role("button", name="Add a passkey").click()
    page.get_by_label("Name").fill("blue key")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="Keep these recovery codes now")).to_be_focused()
    expect(page.get_by_role("rowheader", name="blue key")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("E-mail address").fill("alice@example.org")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{local.url}/sign-in/second")
    fits(page)
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url(f"{local.url}/")
    page.goto("/confirm?next=/projects")
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url(f"{local.url}/projects")


def test_one_session_ends_another(site: Site, watch: Watch) -> None:
    here, there = watch.open(site), watch.open(site, size=PHONE)
    for page in (here, there):
        _give_password(page, "alice@example.org")
        page.wait_for_url(f"{site.url}/")
    here.goto("/account")
    here.get_by_role("button", name="End all other sessions").click()
    expect(here.get_by_text("ended.")).to_be_visible()
    there.goto("/members")
    expect(there.locator("h1")).to_have_text("Sign in")
