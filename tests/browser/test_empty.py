"""Every page of an organization that never sent anything, and the pages before sign-in."""

from __future__ import annotations

import re
from functools import partial

from playwright.sync_api import expect

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import Project
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.services import organization_create, project_create
from controlplane.tenants.sign_in.accounts import setup_link_create, user_create
from tests.browser.site import PASSWORD, Site, elsewhere
from tests.browser.watch import PHONE, Watch, ask, fits, serious_findings
from tests.support.people import Cast


def _newcomer(name: str) -> Project:
    """Of somebody with an organization of their own, to which nothing was ever sent."""
    user = user_create(actor=OPERATOR, email=f"{name}@example.org")
    organization = organization_create(actor=OPERATOR, name=name, owner=user)
    return project_create(actor=user, organization=organization, name="first")


def test_empty_pages_say_what_to_do_next(site: Site, watch: Watch) -> None:
    elsewhere(partial(_newcomer, "nora"))
    page = watch.sign_in(site, email="nora@example.org", size=PHONE)
    next_steps = {
        "/": "Paste this into a terminal",
        # Of all tenants, so a time before any other test's request.
        "/latency?from=2026-01-02T03:00&to=2026-01-02T04:00": "No data from 2026-",
        "/cache": "No prompts in the last 1 hour",
        "/requests": "No requests match",
        "/explore": "No requests reached the gateway",
        "/keys": "No keys yet",
        "/spend": "No charges in",
        "/playground": "Nothing sent yet",
    }
    for path, words in next_steps.items():
        page.goto(path)
        expect(page.locator("main")).to_contain_text(words)
        fits(page)


def test_the_first_request_replaces_the_hint(site: Site, watch: Watch) -> None:
    project = elsewhere(partial(_newcomer, "finn"))
    key = elsewhere(partial(apikey_create, actor=OPERATOR, project=project, label="first")).secret
    page = watch.sign_in(site, email="finn@example.org")
    page.goto("/")
    expect(page.locator("#first-request")).to_be_visible()
    assert "curl -N" in page.locator("#first-curl").inner_text()
    ask(page, site, key)
    expect(page.locator("#first-request")).to_have_count(0)


def test_sign_in_tells_a_wrong_password_and_takes_the_right_one(site: Site, watch: Watch) -> None:
    page = watch.open(site)
    page.goto("/requests")
    page.wait_for_url(re.compile("/sign-in"))
    assert serious_findings(page) == []
    page.get_by_label("E-mail address").fill("bob@example.org")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Incorrect e-mail address or password")
    assert serious_findings(page) == []
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/requests"))
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(re.compile("/sign-in"))


def _invite(cast: Cast) -> str:
    dana = user_create(actor=OPERATOR, email="dana@example.org")
    membership_set(actor=cast.alice, organization=cast.acme, user=dana, role=Role.VIEWER)
    return setup_link_create(actor=OPERATOR, user=dana)


def test_a_one_time_link_signs_its_owner_in(site: Site, watch: Watch) -> None:
    watch.allowed.append("410")
    token = elsewhere(partial(_invite, site.cast))
    page = watch.open(site, size=PHONE, dark=True)
    page.goto(f"/setup/{token}")
    assert serious_findings(page) == []
    page.get_by_label("New password").fill("another-good-password-1")
    page.get_by_label("Confirm password").fill("another-good-password-1")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site.url}/")
    expect(page.get_by_role("status").first).to_contain_text("Your password is set")
    page.goto(f"/setup/{token}")
    expect(page.locator("main")).to_contain_text("is no longer valid")


def test_the_keyboard_reaches_everything_in_order(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site, email="bob@example.org")
    page.goto("/keys")
    wanted = [
        "Skip to content",
        "Sluice",
        "Search\nCtrl K",
        "Observe",
        "Build",
        "Playground",
        "Models",
        "Keys",
        "Templates",
        "Batches",
        "API & snippets",
        "Organization",
        "bob@example.org",
        "Sign out",
        "Create key",
    ]
    reached = []
    for _ in wanted:
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.innerText.trim()"))
    assert reached == wanted
