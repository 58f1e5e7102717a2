"""Insights in a real browser: real requests looked at, compared, mapped and reckoned with.

The comparison and the check are run as the operator runs them, against the running gateway.
"""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime
from functools import partial

import pytest
from django.core.management import call_command
from playwright.sync_api import Page, expect

from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.overview import fleet_view
from controlplane.insights.client import KEY_VARIABLE
from tests.browser.site import Site, elsewhere
from tests.browser.test_routing import let_stella_in
from tests.browser.watch import Watch, ask, check
from tests.support.fleet import MODEL
from tests.support.month import seal_month
from tests.support.waiting import wait_for

WASTE = json.dumps({"name": "Harbour", "note": None, "tags": [], "rooms": [1, 2]}, indent=8)
STAFF = "stella@example.org"
LOOKS_MAX, LOOK_MS = 60, 1_000


@pytest.fixture(scope="module")
def told(site: Site) -> dict[str, str]:
    """What the two commands said, run with the site's own key."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": WASTE}], "max_tokens": 4}

    def run() -> dict[str, str]:
        pool_set(actor=OPERATOR, draft=PoolDraft(name="default", card_hour_micro=2_500_000))
        seal_month()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(KEY_VARIABLE, site.key.secret)
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(body).encode())))
            said = {name: io.StringIO() for name in ("preflight", "compare")}
            command = partial(call_command, "sluice")
            command("preflight", "-", "--url", site.url, stdout=said["preflight"])
            command(
                "compare", "--url", site.url, "--requests", "3", "--words", "40",
                "--output-tokens", "8", stdout=said["compare"],
            )  # fmt: skip
        return {name: out.getvalue() for name, out in said.items()}

    elsewhere(partial(let_stella_in, site))
    wait_for(lambda: elsewhere(_served), "node that pages know, too")
    return elsewhere(run)


def _served() -> bool:
    """Whether a node's offer is written down: the gateway tells it after it serves."""
    found = fleet_view(actor=OPERATOR, now=datetime.now(UTC))
    return any(node.ready and node.node.facts.get("offers") for v in found for node in v.nodes)


def test_a_comparison_is_started_from_its_page(
    site: Site, watch: Watch, told: dict[str, str]
) -> None:
    page = watch.sign_in(site)
    page.goto("/insights/comparison")
    shown = page.get_by_role("heading", level=2)
    before = shown.count()
    page.get_by_role("button", name="Run a comparison").press("Enter")
    dialog = page.get_by_role("dialog")
    check(page)
    watch.allowed.append("422")
    dialog.get_by_label("Requests per way").fill("13")
    dialog.get_by_role("button", name="Run").press("Enter")
    expect(dialog).to_contain_text("less than or equal to 12")
    dialog.get_by_label("Requests per way").fill("1")
    dialog.get_by_role("button", name="Run").press("Enter")
    expect(page.get_by_text("the results appear here")).to_be_visible()
    expect(page.get_by_role("button", name="Run a comparison")).to_have_count(0)
    expect(shown).to_have_count(before + 1)
    expect(page.get_by_text("the results appear here")).to_have_count(0)
    expect(page.get_by_role("row", name=re.compile("Baseline")).first).to_contain_text(MODEL)


def download(page: Page, name: str) -> bytes:
    """The file behind a link."""
    with page.expect_download() as found:
        page.get_by_role("link", name=name, exact=True).click()
    return found.value.path().read_bytes()


def test_the_commands_say_what_was_found(told: dict[str, str]) -> None:
    assert "USD; " in told["preflight"] and "Write it without white space" in told["preflight"]
    lines = told["compare"].splitlines()
    assert [line.partition(":")[0] for line in lines[1:5]] == [
        f"Baseline ({MODEL})",
        f"Gateway tuning only ({MODEL})",
        f"Streaming, shorter prompt ({MODEL})",
        f"KV cache, batching, right-sized model ({MODEL})",
    ]
    assert all("3 answered, 0 failed" in line for line in lines[1:5])


def test_a_member_sees_what_to_mend_and_how_it_went(
    site: Site, watch: Watch, told: dict[str, str]
) -> None:
    # Who runs the installation sees more.
    page = watch.sign_in(site, email="bob@example.org")
    # A body that could be half as long.
    ask(page, site, site.key.secret, WASTE)
    page.goto("/insights")
    for _ in range(LOOKS_MAX):
        # Counts are written every few seconds.
        if page.get_by_text("Write it without white space").count():
            break
        page.wait_for_timeout(LOOK_MS)
        page.reload()
    expect(page.get_by_role("heading", name="nightly summaries")).to_be_visible()
    expect(page.get_by_role("rowheader", name="JSON with empty, null")).to_be_visible()
    check(page)
    assert b"dead_json" in download(page, "Download CSV")
    page.get_by_role("link", name="Stage map").click()
    expect(page.get_by_role("rowheader", name="prefill prompt into the KV")).to_be_visible()
    check(page)
    assert download(page, "PDF").startswith(b"%PDF")
    assert b"| 5 Inference |" in download(page, "Markdown")
    assert b"s7_bill.settle" in download(page, "CSV")
    page.get_by_role("link", name="Comparison").click()
    expect(page.get_by_role("rowheader", name="Baseline").first).to_be_visible()
    sized = page.get_by_role("row").filter(has_text="right-sized").first
    expect(sized).to_contain_text(re.compile("as fast|% faster|% slower"))
    check(page)
    expect(page.get_by_role("link", name="Capacity")).to_have_count(0)


def test_a_request_is_checked_before_it_is_sent(
    site: Site, watch: Watch, told: dict[str, str]
) -> None:
    page = watch.sign_in(site, email="bob@example.org")
    page.goto("/insights/check")
    check(page)
    body = {"model": MODEL, "messages": [{"role": "user", "content": WASTE}], "max_tokens": 4}
    page.get_by_label("Client").select_option("openai-node")
    page.get_by_label("Request").fill(json.dumps(body))
    press = page.get_by_role("button", name="Check", exact=True)
    press.click()
    expect(page.get_by_role("heading", name="It would run")).to_be_visible()
    findings = page.get_by_role("list", name="Findings").get_by_role("listitem")
    expect(findings).to_have_count(2)
    expect(findings.nth(0)).to_contain_text("JSON with empty, null")
    expect(findings.nth(1)).to_contain_text("Not streamed")
    expect(findings.nth(1).locator("pre")).to_contain_text("stream: true")
    check(page)
    clean = {
        "messages": [{"role": "user", "content": "A pool?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    page.get_by_label("Request").fill(json.dumps(body | clean))
    press.click()
    expect(page.get_by_text("Nothing found")).to_be_visible()
    watch.allowed.append("400")
    page.get_by_label("Request").fill("{")
    press.click()
    expect(page.get_by_role("alert")).to_contain_text("JSON")


def test_staff_reckon_what_if(site: Site, watch: Watch, told: dict[str, str]) -> None:
    page = watch.sign_in(site, email=STAFF)
    page.goto("/insights/capacity?days=1")
    expect(page.locator(".status", has_text="bottleneck")).to_be_visible()
    check(page)
    page.get_by_label("Peak rate, requests/s").fill("1e6")
    page.keyboard.press("Enter")
    page.wait_for_url("**rate=1e6**")
    expect(page.get_by_text("nodes needed, 1 ready now")).to_be_visible()
    expect(page.locator(".status.bad").first).to_have_text("bottleneck")
    page.goto("/insights/capacity?days=1&batch=lots")
    expect(page.get_by_role("status").first).to_contain_text("Batching factor")


def test_staff_keep_a_worksheet_and_read_the_plan(
    site: Site, watch: Watch, told: dict[str, str]
) -> None:
    page = watch.sign_in(site, email=STAFF)
    page.goto("/insights/capacity?days=1&rate=40")
    page.get_by_label("Note").fill("after the sale")
    page.get_by_role("button", name="Save this worksheet").click()
    page.wait_for_url("**/insights/capacity/worksheet_**")
    expect(page.get_by_role("row").filter(has_text="Peak rate")).to_contain_text("40.0")
    expect(page.get_by_text("after the sale")).to_be_visible()
    check(page)
    page.get_by_role("link", name="Open this worksheet").click()
    expect(page.get_by_label("Peak rate, requests/s")).to_have_value("40")
    page.get_by_role("link", name="Plan", exact=True).click()
    expect(page.get_by_text("no objective of the installation", exact=False)).to_be_visible()
    expect(page.locator("#plot-rates .main-svg").first).to_be_visible()
    expect(page.get_by_role("rowheader", name="the plan")).to_be_visible()
    check(page)
    assert download(page, "CSV").startswith(b"Fleet,Node-hours")
