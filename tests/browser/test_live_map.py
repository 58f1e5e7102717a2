"""The live map by keyboard and eye: details of each part, a row for each, and a picture that is
kept up to date while somebody is at a part.
"""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.site import NODE, Site
from tests.browser.watch import DESK, PHONE, Watch, check, turn

HELD = "document.activeElement.id"
TABS_MAX = 80


def _tab_to(page: Page, name: str) -> None:
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        if page.evaluate(HELD) == name:
            return
    raise AssertionError(f"{name} is not reached by Tab")


def _as_of(page: Page) -> str:
    return page.locator("main time").first.inner_text()


def test_the_map_is_walked_by_keys_while_it_moves(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site, size=DESK)
    page.goto("/map")
    expect(page.get_by_role("link", name=re.compile(f"Node {NODE}: ready"))).to_be_visible()
    own = f"part-node-{NODE}"
    details = page.locator(f"#{own} .detail")
    expect(details).to_be_hidden()
    _tab_to(page, own)
    expect(details).to_be_visible()
    expect(details).to_contain_text("0 / ")
    before = _as_of(page)
    expect(page.locator("main time").first).not_to_have_text(before)
    assert page.evaluate(HELD) == own, "it is drawn anew, and the focus stays"
    page.keyboard.press("Enter")
    row = page.locator(f"#row-node-{NODE}")
    expect(row).to_be_focused()
    expect(row).to_contain_text("ready")
    before = _as_of(page)
    expect(page.locator("main time").first).not_to_have_text(before)
    expect(page.locator(f"#row-node-{NODE}")).to_be_focused()


def test_a_phone_shows_the_table_and_nothing_is_lost_in_the_dark(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/map")
    check(page)
    turn(page, PHONE, False)
    expect(page.locator("svg.map")).to_be_hidden()
    expect(page.get_by_role("rowheader", name="PostgreSQL")).to_be_visible()
    turn(page, DESK, True)
    expect(page.locator("svg.map")).to_be_visible()
    expect(page.locator(".map .name", has_text="Redis")).to_be_visible()


def test_a_map_that_no_one_answers_for_fades(site: Site, watch: Watch) -> None:
    watch.allowed += ["Failed to load resource", "htmx:"]
    page = watch.sign_in(site, size=DESK)
    page.goto("/map")
    expect(page.locator("svg.map")).to_have_css("opacity", "1")
    page.route("**/map", lambda route: route.abort())
    expect(page.locator("svg.map")).to_have_css("opacity", "0.4")
    expect(page.locator("[data-live-words]")).to_contain_text("no answer")
    page.unroute("**/map")
    expect(page.locator("svg.map")).to_have_css("opacity", "1")
