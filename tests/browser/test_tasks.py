"""What people come for, from a cold start by clicks and keys alone: how many it takes.

A step is a click, or a key that does something (typing is none).
"""

from __future__ import annotations

import re
from functools import partial

from playwright.sync_api import Locator, Page, expect

from controlplane.core.audit.entries import OPERATOR
from controlplane.tenants.services import organization_create, project_create
from controlplane.tenants.sign_in.accounts import user_create
from tests.browser.site import Site, elsewhere
from tests.browser.watch import Watch, ask
from tests.support.waiting import wait_for


class Steps:
    """Acts on a page, and counts."""

    def __init__(self, page: Page) -> None:
        self.page, self.taken = page, 0

    def click(self, of: Locator) -> None:
        of.click()
        self.taken += 1

    def press(self, keys: str) -> None:
        self.page.keyboard.press(keys)
        self.taken += 1


def _newcomer() -> None:
    user = user_create(actor=OPERATOR, email="cold@example.org")
    organization = organization_create(actor=OPERATOR, name="Cold", owner=user)
    project_create(actor=user, organization=organization, name="first")


def test_from_the_first_key_to_the_first_request_are_five_steps(site: Site, watch: Watch) -> None:
    elsewhere(_newcomer)
    steps = Steps(watch.sign_in(site, email="cold@example.org"))
    page = steps.page
    page.goto("/")
    steps.click(page.get_by_role("link", name="Create a key"))
    steps.click(page.get_by_role("button", name="Create key").first)
    page.get_by_label("Label").fill("first")
    steps.click(page.get_by_role("dialog").get_by_role("button", name="Create key"))
    secret = page.get_by_text(re.compile(r"^sk_sluice_\w+$")).first.inner_text()
    ask(page, site, secret)
    steps.click(page.get_by_role("link", name="see its requests"))
    row = page.get_by_role("table", name="Requests").locator("tbody th a").first

    def there() -> bool:
        page.reload()
        return row.count() > 0

    wait_for(there, "the request in the list")
    steps.click(row)
    expect(page.locator(".waterfall")).to_be_visible()
    assert steps.taken <= 5


def test_from_a_request_id_to_its_page_are_two_steps(site: Site, watch: Watch) -> None:
    steps = Steps(watch.sign_in(site))
    page = steps.page
    page.goto("/keys")
    asked = page.request.post(
        f"{site.url}/v1/chat/completions",
        headers={"authorization": f"Bearer {site.key.secret}"},
        data={
            "model": "sluice-5m",
            "max_tokens": 4,
            "messages": [{"role": "user", "content": "x"}],
        },
    )
    identity = asked.headers["x-request-id"]
    wait_for(lambda: page.request.get(f"/requests/{identity}").ok, "the request's row")
    steps.press("Control+k")
    page.keyboard.insert_text(identity)
    expect(page.locator("#found a").first).to_contain_text(identity[-8:])
    steps.press("Enter")
    expect(page.locator(".waterfall")).to_be_visible()
    assert identity.removeprefix("req_") in page.url and steps.taken <= 2


def test_from_a_slow_percentile_to_why_are_three_steps(site: Site, watch: Watch) -> None:
    steps = Steps(watch.sign_in(site))
    page = steps.page
    page.goto("/?range=24h")
    ask(page, site, site.key.secret)
    slow = page.locator("section[aria-labelledby='stages-title'] tbody tr").nth(4)
    link = slow.locator("td[data-label^='p95'] a.exemplar")
    wait_for(partial(_leads, page, link), "a percentile that leads to a request")
    steps.click(link)
    expect(page.get_by_role("heading", name="Why it took")).to_be_visible()
    assert steps.taken <= 3


def _leads(page: Page, link: Locator) -> bool:
    """Whether the percentile's request is recorded: the figures of history are there before it."""
    page.reload()
    href = link.get_attribute("href") if link.count() else None
    return href is not None and "/requests/req_" in page.request.get(href).url
