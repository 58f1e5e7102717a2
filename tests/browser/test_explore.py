"""Explore: reached from a chart, asked by keyboard, readable on every screen."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.site import Site
from tests.browser.watch import PHONE, Watch, check, fits

RANGE = "range=6h"


def test_a_chart_opens_in_explore_and_is_asked_on_by_keyboard(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto(f"/latency?{RANGE}")
    page.get_by_role("link", name="Explore Time between tokens").click()
    page.wait_for_url("**/explore?**by=time**measure=inter_token**")
    expect(page.locator("#plot-explored .main-svg").first).to_be_visible()
    group = page.get_by_label("Group by")
    group.focus()
    group.press_sequentially("Status")
    page.wait_for_url("**by=status**")
    assert "model=" not in page.url and RANGE in page.url
    # The same link shows the same to whoever opens it.
    table = page.locator("table:has(caption:has-text('status'))")
    shown = table.locator("th[scope=row]").all_inner_texts()
    page.goto(page.url)
    assert table.locator("th[scope=row]").all_inner_texts() == shown
    check(page)
    # Under a name it is found again from anywhere.
    page.get_by_role("button", name="Save this view").press("Enter")
    page.get_by_label("Name", exact=True).fill("by outcome")
    page.keyboard.press("Enter")
    expect(page.get_by_text("is saved for you")).to_be_visible()
    page.goto("/keys")
    page.keyboard.press("Control+k")
    page.keyboard.insert_text("by outcome")
    expect(page.locator("#found a")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url("**/explore?**by=status**")
    page.locator("summary", has_text="Saved views").press("Enter")
    check(page)
    page.get_by_role("button", name="Remove the view by outcome").press("Enter")
    expect(page.get_by_text("is removed")).to_be_visible()
    page.goto(f"/explore?{RANGE}&by=status&measure=inter_token")
    table.locator("tbody th a").first.press("Enter")
    page.wait_for_url("**status=ok**")


def test_a_phone_shows_groups_as_cards(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site, size=PHONE)
    page.goto(f"/explore?{RANGE}&by=model&then=status&label=team&against=2026-01-02T03:00")
    fits(page)
    page.goto(f"/explore?{RANGE}&by=model&then=status&measure=prefill")
    expect(page.locator("#plot-explored .main-svg").first).to_be_visible()
    check(page)
