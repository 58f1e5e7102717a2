"""A hosted provider from the first click to the last: added, priced, used, billed and removed.

The provider is a server on loopback; the rest is as it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from playwright.sync_api import Page, expect

from controlplane.billing.ledger.services import seal_ledger
from controlplane.kernel.money import usd_text
from tests.browser.site import Site, connector, elsewhere
from tests.browser.watch import Watch, check
from tests.support.hosted import OUTPUT_TOKENS, PROMPT_TOKENS, SECRET, UPSTREAM, hosted_provider

PAST = "month"
READY_S_MAX = 240.0
LOOK_MS = 500
MODEL = "loop"
# USD per million tokens: input, cached input, output.
COSTS, SOLD = ("100", "50", "200"), ("300", "100", "600")
CHARGED_NANO = (PROMPT_TOKENS * 300 + OUTPUT_TOKENS * 600) * 1_000
COST_NANO = (PROMPT_TOKENS * 100 + OUTPUT_TOKENS * 200) * 1_000


def _until(page: Page, true: Callable[[], bool], words: str) -> None:
    ends = time.monotonic() + READY_S_MAX
    while not true():
        assert time.monotonic() < ends, words
        page.wait_for_timeout(LOOK_MS)


def _chat(page: Page, site: Site) -> Any:
    """One request with a key, as a program sends it."""
    return page.request.post(
        f"{site.url}/v1/chat/completions",
        headers={"authorization": f"Bearer {site.key.secret}"},
        data={"model": MODEL, "messages": [{"role": "user", "content": "Good day"}]},
    )


def _add(page: Page, url: str) -> None:
    page.goto("/connections")
    page.get_by_role("button", name="Add the first connection").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("loopback")
    dialog.get_by_label("Provider", exact=True).select_option("other")
    dialog.get_by_label("URL").fill(url)
    dialog.get_by_label("API key").fill(SECRET)
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("heading", name="loopback")).to_be_visible()
    page.get_by_role("button", name="Test the key").click()
    expect(page.locator("main")).to_contain_text("The key works; 2 models are listed.")
    assert SECRET not in page.content()


def _price(page: Page) -> None:
    page.get_by_role("button", name="Choose models").click()
    page.get_by_label(UPSTREAM).check()
    page.get_by_role("button", name="Continue").click()
    form = page.get_by_role("group", name=UPSTREAM)
    form.get_by_label("Model name in requests").fill(MODEL)
    form.get_by_label("Context window, tokens").fill("8000")
    form.get_by_label("Max. output, tokens").fill("256")
    for words, rates in (("Cost", COSTS), ("Price", SOLD)):
        for kind, rate in zip(("Input", "Cached input", "Output"), rates, strict=True):
            form.get_by_label(f"{words}: {kind}", exact=True).fill(rate)
    check(page)
    page.get_by_role("button", name="Continue").click()
    look = page.get_by_role("region", name="Save these models and prices?")
    expect(look).to_contain_text("300.00 / 100.00 / 600.00")
    # Cached input earns least: half of what it is sold for.
    expect(look).to_contain_text("50.0 %")
    check(page)
    look.get_by_role("button", name="Save").click()
    expect(page.locator("main")).to_contain_text("Models and prices are saved.")


def _margin(page: Page) -> dict[str, Any]:
    lines = page.request.get("/api/billing/margin").json()["models"]
    found: dict[str, Any] = next(line for line in lines if line["name"] == MODEL)
    return found


def test_a_provider_is_added_used_billed_and_removed_in_the_browser(
    site: Site, watch: Watch
) -> None:
    page = watch.sign_in(site)
    with hosted_provider() as provider:
        _add(page, provider.url)
        check(page)
        _price(page)
        with connector(site):
            _until(page, lambda: bool(_chat(page, site).ok), "the model is served")
            answer = _chat(page, site).json()
            assert answer["choices"][0]["message"]["content"] == "Good day."
            elsewhere(lambda: seal_ledger(datetime.now(UTC)))
            charged = _margin(page)
            requests, rest = divmod(charged["revenue_nano"], CHARGED_NANO)
            assert requests >= 2 and rest == 0
            assert charged["purchase_nano"] == requests * COST_NANO
            assert charged["margin_nano"] == requests * (CHARGED_NANO - COST_NANO)
            models = page.get_by_role("region", name="Models", exact=True)

            def ready() -> bool:
                page.goto("/connections")
                page.get_by_role("link", name="loopback").click()
                expect(models).to_be_visible()
                return "ready" in models.inner_text()

            _until(page, ready, "a node serves the model")
            spend = page.get_by_role("region", name="Spend")
            expect(spend).to_contain_text(UPSTREAM)
            cost = usd_text(requests * COST_NANO)
            expect(spend.locator(f'[title="${cost}"]').first).to_be_visible()
            check(page)
            page.get_by_role("button", name="Disable").click()
            expect(page.locator("main")).to_contain_text("is disabled")
            _until(page, lambda: _chat(page, site).status == 503, "requests are refused")
            page.get_by_role("button", name="Remove", exact=True).click()
            page.get_by_role("dialog").get_by_role("button", name="Remove").click()
            expect(page.locator("main")).to_contain_text("is removed and its keys are deleted")
            _until(page, lambda: _chat(page, site).status == 404, "the model is off")
    remove = page.get_by_role("button", name="Remove", exact=True)

    def unneeded() -> bool:
        page.goto(f"/catalog/of/{MODEL}")
        return remove.count() > 0

    _until(page, unneeded, "no node serves it any more")
    remove.click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator("main")).to_contain_text("is removed")
    page.goto("/connections")
    expect(page.locator("main")).to_contain_text("No connections yet")
