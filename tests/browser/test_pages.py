"""Every page on a site with traffic, in Chromium: clean console, policy, no other origin, axe."""

from __future__ import annotations

import re
from functools import partial

import pytest
from PIL import Image
from playwright.sync_api import Page, expect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from controlplane.kernel.spans import SPANS
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.services import project_create
from tests.browser.site import Site, elsewhere
from tests.browser.watch import PHONE, Watch, ask, check, fits, turn

RANGE = "range=6h"
CHARTS = {
    f"/?{RANGE}": (
        "traffic",
        "total",
        "stages",
        "ttft",
        "overhead",
        "throughput",
        "queue",
        "priorities",
        "oldest",
        "cache",
    ),
    f"/latency?{RANGE}&stage=s5_infer&by=route": (
        "heat",
        "stages",
        "stacked",
        "phases",
        "buckets",
        "inter_token",
        "overhead",
        "speed",
    ),
    f"/cache?{RANGE}&by=model&compare=previous": ("cache", "tokens"),
}
# Where a cell of a heat map's newest filled step is drawn, from the corner of its plot.
# Others' requests count, too, and are not listed; of the most there are some of one's own.
FULLEST_CELL = """
(holder) => {
  const [{ x, y, z }] = holder.data, { xaxis, yaxis } = holder._fullLayout;
  const most = Math.max(...z.flat());
  const row = z.findIndex((counts) => counts.includes(most));
  const column = z[row].indexOf(most);
  const middle = (axis, edges, at) => (axis.d2p(edges[at]) + axis.d2p(edges[at + 1])) / 2;
  return [middle(xaxis, x, column), middle(yaxis, y, row)];
}
"""


def _drawn(page: Page, path: str = "/") -> None:
    (names,) = (names for address, names in CHARTS.items() if address.startswith(f"{path}?"))
    for name in names:
        expect(page.locator(f"#plot-{name} .main-svg").first).to_be_visible()


def test_a_phone_has_the_pages_and_the_account_in_a_drawer(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site, size=PHONE)
    for path in ("/", "/members", "/exports"):
        turn(page, PHONE, False)
        page.goto(path)
        here = page.locator(".nav [aria-current]")
        expect(here).to_be_hidden()
        page.get_by_role("button", name="Menu").click()
        expect(here).to_be_in_viewport(ratio=0.9)
        expect(page.get_by_title("Your account")).to_be_visible()
        fits(page)
    page.get_by_role("button", name="Menu").press("Enter")
    expect(page.get_by_title("Your account")).to_be_hidden()


def test_all_groups_of_pages_are_in_sight(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto("/members")
    groups = page.locator(".nav summary")
    expect(groups).to_have_count(5)
    for group in groups.all():
        group.click()
        for each in [*groups.all(), *page.locator(".nav details[open] a").all()]:
            expect(each).to_be_in_viewport(ratio=1.0)
    expect(page.locator(".nav details[open]")).to_have_count(1)


def test_a_row_opens_the_request_that_it_shows(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto(f"/requests?{RANGE}")
    row = page.locator("table:has(caption:text-is('Requests')) tbody tr").first
    link = str(row.get_by_role("link").first.get_attribute("href"))
    row.locator("td[data-label='Total']").click()
    page.wait_for_url(f"**{link}")


def test_anything_is_found_by_the_keyboard(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/members")
    page.keyboard.press("Control+k")
    box = page.get_by_role("searchbox")
    expect(box).to_be_focused()
    box.press_sequentially("support")
    expect(page.locator("#found a").first).to_contain_text("support bot")
    check(page)
    page.keyboard.press("ArrowDown")
    expect(page.locator("#found a").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(box).to_be_hidden()
    page.keyboard.press("?")
    expect(page.get_by_text("next and previous request")).to_be_visible()
    expect(box).to_have_value("support")
    # As a client knows it, in a ticket.
    box.fill(f"chatcmpl-{site.requests[-1].hex}")
    expect(page.locator("#found a")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/requests/req_{site.requests[-1].hex}")


@pytest.mark.parametrize("path", CHARTS)
def test_charts_are_readable_local_and_cannot_be_sent_anywhere(
    site: Site, watch: Watch, path: str
) -> None:
    page = watch.sign_in(site)
    page.goto(path)
    _drawn(page, path.partition("?")[0])
    check(page)
    for name in CHARTS[path]:
        context = page.evaluate(
            "(name) => { const c = document.getElementById(`plot-${name}`)._context;"
            " return [c.showSendToCloud, c.plotlyServerURL, c.displaylogo, c.displayModeBar]; }",
            name,
        )
        assert context == [False, "", False, False]
        page.locator(f"figure:has(#plot-{name}) summary").click()
        # More than five.
        expect(page.locator(f"figure:has(#plot-{name}) tbody tr").nth(5)).to_be_attached()
    page.locator(f"#plot-{CHARTS[path][0]}").hover(position={"x": 400, "y": 150})


def test_a_chart_can_be_taken_away(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto(f"/?{RANGE}")
    _drawn(page)
    with page.expect_download() as picture:
        page.get_by_role("button", name="PNG of Time to first token").click()
    assert picture.value.suggested_filename == "sluice-ttft.png"
    with Image.open(picture.value.path()) as drawn:
        assert drawn.convert("RGBA").getchannel("A").getpixel((2, 2)) == 255
        # Room for the title above the chart.
        shown = page.locator("#plot-ttft").bounding_box()
        assert shown is not None and drawn.height == 2 * (round(shown["height"]) + 80)
    with page.expect_download() as table:
        page.get_by_role("link", name="CSV of Time to first token").click()
    assert table.value.suggested_filename == "sluice-ttft.csv"


def test_the_keyboard_opens_a_stage_and_takes_a_picture_of_the_heat_map(
    site: Site, watch: Watch
) -> None:
    page = watch.sign_in(site)
    page.goto(f"/latency?{RANGE}&compare=previous")
    page.get_by_role("link", name="5 Inference").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("stage=s5_infer"))
    expect(page.locator(".ladder tr.layer")).to_have_count(4)
    page.get_by_role("link", name="Region").press("Enter")
    page.wait_for_url(re.compile("by=region"))
    expect(page.locator("#groups tbody th")).to_have_text("local")
    page.get_by_label("Measure", exact=True).select_option("ttft")
    page.wait_for_url(re.compile("measure=ttft"))
    assert "stage=s5_infer" in page.url and "compare=previous" in page.url
    _drawn(page, "/latency")
    with page.expect_download() as picture:
        page.get_by_role("button", name="PNG of Time to first token distribution").press("Enter")
    assert picture.value.suggested_filename == "sluice-heat.png"
    with page.expect_download() as table:
        page.get_by_role("link", name="CSV of the stage waterfall").press("Enter")
    assert "prefill," in table.value.path().read_text()


def test_a_cell_of_the_heat_map_and_its_line_of_the_table_lead_to_their_requests(
    site: Site, watch: Watch
) -> None:
    page = watch.sign_in(site)
    page.goto(f"/latency?{RANGE}")
    _drawn(page, "/latency")
    x, y = page.locator("#plot-heat.opens").evaluate(FULLEST_CELL)
    page.locator("#plot-heat .nsewdrag").click(position={"x": x, "y": y})
    page.wait_for_url(re.compile(r"/requests\?from="))
    clicked = page.url.removeprefix(site.url)
    expect(page.locator("#results .flush tbody th a").first).to_be_visible()
    page.go_back()
    figure = page.locator("figure", has=page.locator("#plot-heat"))
    figure.locator("summary").press("Enter")
    figure.locator(f".plot-table a[href='{clicked}']").press("Enter")
    page.wait_for_url(re.compile(r"/requests\?from=.*&min_ms=.*&max_ms="))
    expect(page.locator("#results .flush tbody th a").first).to_be_visible()


def test_a_percentile_leads_to_a_request_that_took_so_long(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto(f"/?{RANGE}")
    page.locator("a.exemplar", has=page.locator("[data-cell='ttft.p95']")).press("Enter")
    page.wait_for_url(re.compile(r"/requests(/req_[0-9a-f]{32})?\?"))
    # Of which model depends on what other tests asked for in these hours.
    expect(page.locator("main")).to_contain_text(re.compile("tiny|far-away"))


def test_live_figures_follow_traffic_within_seconds_and_can_be_paused(
    site: Site, watch: Watch
) -> None:
    # A project without a past: of the other's the range loses a minute now and then.
    alice, acme = site.cast.alice, site.cast.acme
    project = elsewhere(partial(project_create, actor=alice, organization=acme, name="live"))
    key = elsewhere(partial(apikey_create, actor=alice, project=project, label="live")).secret
    page = watch.sign_in(site)
    with page.expect_websocket() as socket:
        page.goto(f"/?range=15m&project={project.id.hex}")
    live = page.locator("#live")
    expect(live).to_have_attribute("data-live-state", "on")
    tile = page.locator("[data-cell='requests']")
    expect(tile).to_have_attribute("title", "0")
    ask(page, site, key)
    expect(tile).to_have_attribute("title", "1")
    # No figures come while it is closed.
    with socket.value.expect_event("close"):
        page.get_by_role("button", name="Pause").click()
    expect(live).to_have_attribute("data-live-state", "off")
    with page.expect_websocket():
        page.get_by_role("button", name="Resume").click()
    expect(live).to_have_attribute("data-live-state", "on")


def test_the_overview_keeps_its_part_of_the_traffic_from_page_to_page(
    site: Site, watch: Watch
) -> None:
    page = watch.sign_in(site)
    page.goto(f"/?{RANGE}")
    page.get_by_label("Project").select_option(label="web")
    page.wait_for_url(re.compile(f"project=proj_{site.cast.project.id.hex}"))
    page.get_by_label("Model").select_option("tiny")
    page.wait_for_url(re.compile("model=tiny"))
    expect(page.get_by_label("Project")).to_have_value(f"proj_{site.cast.project.id.hex}")
    page.get_by_role("link", name="Last 24 hours").click()
    expect(page.get_by_label("Model")).to_have_value("tiny")
    page.get_by_role("link", name="Cancelled by client").click()
    expect(page.get_by_label("Status")).to_have_value("499")
    expect(page.get_by_label("Project")).to_have_value(f"proj_{site.cast.project.id.hex}")


def test_the_keyboard_goes_from_request_to_request_and_back(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto(f"/requests?{RANGE}&status=failed")
    page.locator("table.cards tbody a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/requests/req_[0-9a-f]{32}"))
    first = page.url
    page.keyboard.press("j")
    page.wait_for_url(lambda url: url != first)
    assert "status=failed" in page.url
    expect(page.locator(".verdict .status").first).not_to_have_text("200")
    page.keyboard.press("k")
    page.wait_for_url(first)
    page.keyboard.press("Escape")
    page.wait_for_url(re.compile(r"/requests\?"))
    assert "status=failed" in page.url


def test_filters_change_the_list_and_the_address(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto(f"/requests?{RANGE}")
    page.get_by_label("Status").select_option("failed")
    expect(page.locator("#results .status.ok")).to_have_count(0)
    page.wait_for_url(re.compile("status=failed"))
    page.reload()
    expect(page.get_by_label("Status")).to_have_value("failed")
    page.get_by_label("Status").select_option("ok")
    page.wait_for_url(re.compile("status=ok"))
    page.locator("table.cards tbody a").first.click()
    page.wait_for_url(re.compile(r"/requests/req_[0-9a-f]{32}"))
    page.go_back()
    expect(page.get_by_role("heading", name="Requests", exact=True)).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Requests", exact=True)).to_be_visible()
    page.get_by_label("Min. latency (ms)").press("j")
    assert "/requests?" in page.url


def test_a_requests_page_tells_its_whole_story(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto(f"/requests?{RANGE}&status=ok")
    page.locator("table.cards tbody a").first.click()
    # The last is the line to the client.
    expect(page.locator(".waterfall tbody tr")).to_have_count(len(SPANS) + 1)
    assert page.locator(".waterfall tr.layer:not(.absent)").count() >= 14
    # Layers that did not run are folded away.
    absent = page.locator(".waterfall tr.layer.absent").first
    expect(absent).to_be_hidden()
    page.get_by_label("show all").press("Space")
    expect(absent).to_be_visible()
    text = page.locator("main").inner_text()
    for words in (
        "Before the gateway",
        "Node: queue",
        "Other (outside all stages)",
        "Route receipt",
        "settle",
    ):
        assert words in text
    assert re.search(r"\b0\.\d{9}\b", text)


def test_a_key_is_made_copied_and_revoked_by_hand(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/keys")
    page.get_by_role("button", name="Create key").click()
    page.get_by_label("Label").fill("by hand")
    page.keyboard.press("Enter")
    secret = page.locator("#new-key").inner_text()
    assert re.fullmatch(r"sk_sluice_\w{12}_\w{43}_\w{6}", secret)
    stores = "JSON.stringify([{...localStorage}, {...sessionStorage}])"
    page.get_by_text("Observe", exact=True).click()
    page.get_by_role("link", name="Requests", exact=True).click()
    expect(page.get_by_role("heading", name="Requests", exact=True)).to_be_visible()
    assert secret not in page.evaluate(stores)
    page.goto("/keys")
    assert secret not in page.content()
    page.get_by_role("button", name="Revoke by hand").click()
    expect(page.get_by_role("button", name="Keep the key")).to_be_focused()
    page.get_by_role("button", name="Revoke the key").click()
    expect(page.get_by_role("status").first).to_contain_text("is revoked")
    row = page.locator("tr", has_text="by hand")
    expect(row.locator(".status").first).to_have_text("revoked")


def test_a_double_click_makes_one_key_and_shows_its_secret(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/keys")
    page.get_by_role("button", name="Create key").click()
    page.get_by_label("Label").fill("clicked twice")
    page.locator("dialog").get_by_role("button", name="Create key").dblclick()
    expect(page.locator("#new-key")).to_contain_text("sk_sluice_")
    expect(page.locator("tr", has_text="clicked twice")).to_have_count(1)


def test_one_may_not_watch_without_signing_in_or_from_elsewhere(site: Site, watch: Watch) -> None:
    watch.allowed += ["WebSocket", "404"]
    page = watch.open(site)
    page.goto("/sign-in")
    code = page.evaluate(
        "() => new Promise((resolve) => { const s = new WebSocket(`ws://${location.host}/live`);"
        " s.onclose = (event) => resolve(event.code); })"
    )
    assert code == 4401
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{site.port}/live", origin=Origin("http://elsewhere.example"))
    assert refused.value.response.status_code == 403
