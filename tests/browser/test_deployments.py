"""The Deployments page with a real agent: a host is added, a model deployed, refused, removed."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import Page, expect

from controlplane.billing.ledger.services import seal_ledger
from tests.browser.site import Site, agent, elsewhere
from tests.browser.watch import DESK, PHONE, Watch, fits
from tests.support.fleet import MODEL
from tests.support.hosts import SHIPPED

READY_S_MAX = 90.0
LOOK_MS = 500
# USD per million tokens: input, cached input, output.
SOLD = ("3000", "1000", "6000")


def _until(page: Page, words: str, path: str = "/deployments", *, gone: bool = False) -> None:
    """Look again until the page says so, or does no longer."""
    ends = time.monotonic() + READY_S_MAX
    while time.monotonic() < ends:
        page.goto(path)
        if (words in page.locator("main").inner_text()) != gone:
            return
        page.wait_for_timeout(LOOK_MS)
    raise AssertionError(f"never {words!r}: {page.locator('main').inner_text()}")


def _add_host(page: Page, name: str) -> str:
    """Add a host on the page; returns its token."""
    page.goto("/deployments")
    page.get_by_role("button", name="Add a host").press("Enter")
    page.get_by_label("Host name").fill(name)
    page.get_by_role("button", name="Create command").press("Enter")
    (token,) = re.findall(r"enrol_sluice_\w+", page.locator("#agent-command").inner_text())
    return str(token)


def _deploy(page: Page, name: str, sequences: int, *, model: str = MODEL, engine: str) -> None:
    page.get_by_role("button", name="Deploy a model").press("Enter")
    page.get_by_label("Deployment name").fill(name)
    page.get_by_label("Catalog model").select_option(model)
    page.locator("#new-engine").select_option(engine)
    page.locator("#new-kind").select_option("folder")
    page.get_by_label("Repository or folder").fill(str(SHIPPED))
    page.locator("#new-sequences").fill(str(sequences))
    page.get_by_role("button", name="Deploy", exact=True).press("Enter")
    expect(page.get_by_text(f"Deployment “{name}” is created.")).to_be_visible()


def test_a_model_is_deployed_by_keys_and_removed(site: Site, watch: Watch, tmp_path: Path) -> None:
    page = watch.sign_in(site, size=DESK)
    token = _add_host(page, "desk-1")
    _until(page, "waiting for its agent")
    assert token not in page.content()
    with agent(site, token, tmp_path, "desk-1"):
        _until(page, "reports")
        _deploy(page, "too-large", 4_096, engine="echo")
        _until(page, "It does not fit. Needed: ")
        _deploy(page, "small", 1, engine="echo")
        _until(page, "running")
        page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        _until(page, "small-1")
        fits(page)
        page.set_viewport_size({"width": DESK[0], "height": DESK[1]})
        fits(page)
        page.get_by_role("button", name="Change small").press("Enter")
        page.locator("#change-small-replicas").fill("0")
        page.locator("#change-small-window").fill("2048")
        page.locator("#change-small-arguments").fill("tokens-per-s=50")
        fits(page)
        page.get_by_role("button", name="Save").press("Enter")
        expect(page.get_by_text("Deployment “small” is changed.")).to_be_visible()
        _until(page, "stopped")
        expect(page.locator("#change-small-arguments")).to_have_value("tokens-per-s=50")
        expect(page.locator("main")).to_contain_text("2,048 × 1")
        for name in ("small", "too-large"):
            _remove_deployment(page, name)
        _remove_host(page, "desk-1")


def _remove_deployment(page: Page, name: str) -> None:
    page.get_by_role("button", name=f"Remove {name}").press("Enter")
    page.get_by_role("button", name="Remove the deployment").press("Enter")
    expect(page.get_by_text(f"Deployment “{name}” is draining")).to_be_visible()


def _remove_host(page: Page, name: str) -> None:
    """Its agent drains and is refused then, so the host goes from the page."""
    page.get_by_role("button", name=f"Remove the host {name}").press("Enter")
    page.get_by_role("button", name="Remove the host", exact=True).press("Enter")
    expect(page.get_by_text(f"Host “{name}” will be removed once its agent")).to_be_visible()
    _until(page, name, gone=True)


def _add_model(page: Page, name: str) -> None:
    """Add a model to the catalog and publish its price."""
    page.goto("/catalog")
    page.get_by_role("button", name="Add a model").click()
    page.get_by_label("Model name in requests").fill(name)
    page.get_by_label("Context window").fill("2048")
    page.get_by_label("Default output").fill("16")
    page.get_by_label("Max. output").fill("16")
    page.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text(f"{name} is added.")).to_be_visible()
    page.get_by_role("button", name="Publish a price").click()
    for words, rate in zip(("Input, USD", "Cached input", "Output"), SOLD, strict=True):
        page.get_by_role("dialog").get_by_label(words).fill(rate)
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text(f"Version 1 of {name} applies")).to_be_visible()


def _use(page: Page, name: str) -> None:
    """Ask the model in the playground, and look at the bill of that request."""
    _until(page, "ready", f"/catalog/of/{name}")
    page.get_by_role("link", name="Try it").click()
    page.get_by_label("You", exact=True).fill("Good day")
    state, ends = page.locator("#ask-state"), time.monotonic() + READY_S_MAX
    # Gateways learn of models and nodes each at their own time.
    while state.inner_text() != "Done":
        assert time.monotonic() < ends, page.locator("main").inner_text()
        page.get_by_role("button", name="Send").click()
        expect(state).to_have_text(re.compile("Done|Failed"))
    expect(page.locator(".cost").last).to_contain_text("$0.")


def test_a_model_is_added_priced_deployed_used_billed_and_removed_by_clicks(
    site: Site, watch: Watch, tmp_path: Path
) -> None:
    page, name = watch.sign_in(site, size=DESK), "shipped"
    watch.allowed.extend(["404", "503"])
    _add_model(page, name)
    token = _add_host(page, "desk-2")
    with agent(site, token, tmp_path, "desk-2"):
        _until(page, "reports")
        _deploy(page, "first", 1, model=name, engine="compact")
        _until(page, "running")
        _until(page, "the deployment first runs it", f"/catalog/of/{name}")
        _use(page, name)
        elsewhere(lambda: seal_ledger(datetime.now(UTC)))
        _until(page, name, "/margin")
        line = page.get_by_role("row").filter(has_text=name)
        expect(line).to_contain_text("$0.")
        page.goto("/deployments")
        _remove_deployment(page, "first")
        _until(page, "first-1", gone=True)
        _remove_host(page, "desk-2")
    _until(page, "still needed", f"/catalog/of/{name}", gone=True)
    page.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator("main")).to_contain_text("is removed")
    _until(page, name, "/catalog", gone=True)
