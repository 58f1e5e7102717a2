"""Changes of limits in Chromium: readable at both sizes, from a dialog to a rollback."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.site import Site
from tests.browser.watch import Watch, check


def test_a_limit_is_drafted_tried_published_and_rolled_back(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/limits")
    page.get_by_role("button", name="Change").first.click()
    page.get_by_role("dialog").get_by_label("Concurrent requests").fill("99")
    page.get_by_role("button", name="Add to a draft, to try it first").click()
    expect(page.get_by_text("concurrent requests:").first).to_be_visible()
    check(page)
    number = page.url.rpartition("/")[2]
    page.goto(f"/limits/changes/{number}/dry-run")
    check(page)
    page.goto(f"/limits/changes/{number}")
    page.get_by_role("button", name="Publish").click()
    page.get_by_role("dialog").get_by_role("button", name="Publish").click()
    expect(page.get_by_text(f"Version {number} is live")).to_be_visible()
    page.goto("/limits/changes")
    check(page)
    page.get_by_role("button", name=f"Roll back version {number}").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(page.get_by_text(f"rollback of version {number}").first).to_be_visible()
