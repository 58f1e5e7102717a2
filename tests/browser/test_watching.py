"""Keys, Limits, Spend, Requests and Fleet on a site that looks used: seen, walked by keyboard."""

from __future__ import annotations

import re
from functools import partial

from playwright.sync_api import Page, expect

from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.models import Node
from controlplane.fleet.services import node_credential_create, node_remove
from tests.browser.site import NODE, Site, elsewhere
from tests.browser.watch import Watch
from tests.support.fleet import MODEL

RANGE = "range=6h"
# Several times what such a page waits until it asks again.
PERIODS_MS = 10_000


def until_drawn(page: Page) -> None:
    if page.locator("#reference").count():
        expect(page.locator(".opblock-tag").first).to_be_visible()
    for plot in page.locator(".plot").all():
        if "No data" not in plot.inner_text():
            expect(plot.locator(".main-svg").first).to_be_visible()


def test_spend_leads_from_a_sum_to_its_requests_by_keyboard(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/spend")
    expect(page.locator(".tile").nth(2)).to_contain_text("$")
    expect(page.get_by_role("row", name=re.compile("Key support bot"))).to_contain_text(
        "not before reset"
    )
    page.get_by_role("link", name="support bot").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/requests\?.*key=key_[0-9a-f]{32}"))
    expect(page.get_by_label("Key")).not_to_have_value("")
    page.go_back()
    with page.expect_download() as table:
        page.get_by_role("link", name="CSV of Models").press("Enter")
    assert table.value.suggested_filename.startswith("sluice-spend-model-")


def test_the_list_is_narrowed_by_its_shares_and_taken_away(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto(f"/requests?{RANGE}")
    page.get_by_label("Sort by").select_option("slow")
    expect(page.get_by_role("heading", name="The 50 slowest of them")).to_be_visible()
    page.locator(".shares summary").press("Enter")
    page.locator(".shares").get_by_role("link", name="length", exact=True).press("Enter")
    page.wait_for_url(re.compile("finish=length"))
    expect(page.get_by_label("Finish")).to_have_value("length")
    with page.expect_download() as table:
        page.get_by_role("link", name="CSV of the list").press("Enter")
    assert table.value.suggested_filename == "sluice-requests.csv"
    page.locator("#results tbody a").last.press("Enter")
    expect(page.get_by_role("heading", name="What happened")).to_be_visible()
    expect(page.get_by_role("region", name="What happened")).to_contain_text(
        "Version 1 of the prices of tiny"
    )


def _idle(name: str) -> Node:
    """A node that never comes."""
    made = node_credential_create(actor=OPERATOR, name=name, pool="default")
    return Node.objects.get(id=made.credential.node_id)


def test_what_is_dragged_over_in_a_chart_becomes_the_range_of_the_page(
    site: Site, watch: Watch
) -> None:
    page = watch.sign_in(site)
    page.goto(f"/?range=6h&model={MODEL}")
    expect(page.locator("#plot-ttft .main-svg").first).to_be_visible()
    chart = page.locator("#plot-ttft .nsewdrag").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 4, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, y, steps=5)
    page.mouse.up()
    page.wait_for_url(re.compile("from=.*to="))
    assert f"model={MODEL}" in page.url
    ranges = page.get_by_role("navigation", name="Time range")
    expect(ranges.locator("[aria-current]")).to_have_count(0)


def test_a_time_is_told_in_the_readers_own_zone(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/keys")
    time = page.locator("main time").first
    time.hover()
    expect(time).to_have_attribute("title", re.compile("UTC|GMT"))


def test_the_fleet_moves_by_itself_and_keeps_what_is_under_ones_hands(
    site: Site, watch: Watch
) -> None:
    made = [elsewhere(partial(_idle, "aa-idle"))]
    page = watch.sign_in(site)
    page.clock.install()
    page.goto("/fleet")
    state, stamp = page.locator("#poll"), page.locator("[data-poll] .note time").first
    expect(state).to_have_attribute("data-live-state", "on")
    row = page.get_by_role("row", name=re.compile(NODE))
    expect(row).to_contain_text("ready")
    first = stamp.inner_text()
    expect(stamp).not_to_have_text(first)
    # A button that has the focus stays the same one, and a table as it was sorted.
    button = page.get_by_role("button", name=f"Drain {NODE}")
    button.evaluate("(button) => { button.marked = true; }")
    table = page.get_by_role("table", name="Nodes of the pool default")
    head = table.get_by_role("columnheader", name="Node")
    for _ in range(2):
        head.get_by_role("button").click()
    top = table.get_by_role("rowheader").first
    expect(top).to_contain_text(NODE)
    button.focus()
    held = stamp.inner_text()
    # Another node comes, and one goes.
    made.append(elsewhere(partial(_idle, "bb-idle")))
    page.clock.run_for(PERIODS_MS)
    expect(page.get_by_role("rowheader", name="bb-idle")).to_be_visible()
    for each in made:
        elsewhere(partial(node_remove, actor=OPERATOR, node=each))
    page.clock.run_for(PERIODS_MS)
    expect(page.get_by_role("rowheader", name="idle")).to_have_count(0)
    expect(stamp).not_to_have_text(held)
    expect(top).to_contain_text(NODE)
    expect(button).to_be_focused()
    assert button.evaluate("(button) => button.marked")
    expect(head).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="Pause").press("Enter")
    expect(state).to_have_attribute("data-live-state", "off")
    expect(page.get_by_role("row", name=re.compile("fresh"))).to_be_visible()


def test_who_was_signed_out_is_told_and_keeps_the_page(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/fleet")
    page.context.clear_cookies()
    state = page.locator("#poll")
    expect(state).to_have_attribute("data-live-state", "lost")
    expect(state).to_contain_text("signed out: reload")
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
