"""Single sign-on in a browser: two providers on the page, and somebody comes in by the second."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import msgspec
import pytest
from playwright.sync_api import expect

from controlplane.core.permissions import organization_scope
from controlplane.tenants.models import Membership
from tests.browser.shared import Kept
from tests.browser.site import Site, elsewhere
from tests.browser.watch import PHONE, Watch, check, fits
from tests.support.provider import Provider, oidc_provider, provider_running

# Of its own, since it has the providers from its start.
PAST = "providers"
SETTING = "SLUICE_OIDC_PROVIDERS"


@pytest.fixture(scope="module")
def providers() -> Iterator[tuple[Provider, Provider]]:
    with provider_running() as one, provider_running("/realms/acme") as two:
        yield one, two


@pytest.fixture(scope="module")
def site(sites: Kept[str, Site], providers: tuple[Provider, Provider]) -> Iterator[Site]:
    one, two = providers
    said = [
        oidc_provider(one.issuer, id="one", name="First ID", domains=["elsewhere.org"]),
        oidc_provider(two.issuer, id="two", name="Acme Keycloak"),
    ]
    os.environ[SETTING] = json.dumps([msgspec.to_builtins(each) for each in said])
    try:
        yield sites.of(PAST)
    finally:
        del os.environ[SETTING]


def test_somebody_comes_in_by_the_second_provider_and_not_by_the_first(
    site: Site, watch: Watch, providers: tuple[Provider, Provider]
) -> None:
    one, two = providers
    watch.origins = [one.origin, two.origin]
    for each in providers:
        each.person = {"email": site.cast.bob.email, "sub": "bob-1"}
    page = watch.open(site)
    page.goto("/requests")
    check(page)
    page.get_by_role("link", name="Sign in with First ID").click()
    expect(page.get_by_text("Single sign-on failed.")).to_be_visible()
    fits(page)
    page.goto("/requests")
    page.get_by_role("link", name="Sign in with Acme Keycloak").press("Enter")
    page.wait_for_url(re.compile("/requests"))
    expect(page.locator("h1")).to_have_text("Requests")
    # It alone is asked to confirm, and alone knows him.
    page.goto("/confirm?next=/account")
    expect(page.get_by_role("link", name="Confirm with Acme Keycloak")).to_be_visible()
    expect(page.get_by_role("link", name="Confirm with First ID")).to_have_count(0)
    two.person["auth_time"] = 4_000_000_000
    page.get_by_role("link", name="Confirm with Acme Keycloak").click()
    page.wait_for_url(f"{site.url}/account")


def test_members_tell_by_whose_rules_a_role_is(
    site: Site, watch: Watch, providers: tuple[Provider, Provider]
) -> None:
    _, two = providers
    assert elsewhere(lambda: _given_by(site, two.issuer)) == 1
    try:
        page = watch.sign_in(site, size=PHONE)
        page.goto("/members")
        expect(page.get_by_text(f"by {two.issuer}")).to_be_visible()
        fits(page)
    finally:
        elsewhere(lambda: _given_by(site, ""))


def _given_by(site: Site, issuer: str) -> int:
    with organization_scope([site.cast.acme.id]):
        rows = Membership.objects.filter(user_id=site.cast.bob.id)
        return rows.update(issuer=issuer)
