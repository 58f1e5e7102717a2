"""Exports in Chromium: readable at both sizes, asked for by form, watched, taken away."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from controlplane.billing.exports.services import exports_due
from controlplane.billing.exports.writer import export_write
from tests.browser.site import Site, elsewhere
from tests.browser.watch import DESK, PHONE, Watch, fits


def _work() -> None:
    """What a worker does."""
    for due in exports_due():
        while export_write(due):
            continue


@pytest.mark.parametrize(("size", "dark"), [(DESK, False), (PHONE, True)])
def test_an_export_is_made_watched_and_taken_away(
    site: Site, watch: Watch, size: tuple[int, int], dark: bool
) -> None:
    page = watch.sign_in(site, size=size, dark=dark)
    page.goto("/exports")
    page.get_by_label("Type", exact=True).select_option("focus")
    page.get_by_label("or from").fill("2025-10-01")
    page.get_by_label("to (inclusive)").fill("2025-10-31")
    page.get_by_role("button", name="Create export").click()
    page.wait_for_url(re.compile("/exports$"))
    row = page.locator("#export-rows tbody tr").first
    expect(row).to_contain_text("Waiting")
    fits(page)
    elsewhere(_work)
    # The list asks again by itself.
    expect(row).to_contain_text("Done")
    fits(page)
    with page.expect_download() as file:
        row.get_by_role("link", name="CSV").click()
    assert file.value.suggested_filename == "sluice-focus-2025-10-01-to-2025-10-31.csv"
    with page.expect_download() as manifest:
        row.get_by_role("link", name="Manifest").click()
    told = json.loads(Path(manifest.value.path()).read_text())
    data = Path(file.value.path()).read_bytes()
    assert told["sha256"] == hashlib.sha256(data).hexdigest()


def test_a_month_that_runs_tells_what_is_not_in_its_file(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/exports")
    month = page.get_by_label("Month")
    month.select_option(index=0)
    page.get_by_label("Type").select_option(label="Usage by hour")
    page.get_by_role("button", name="Create export").click()
    elsewhere(_work)
    row = page.locator("#export-rows tbody tr").first
    expect(row).to_contain_text("Incomplete")
    page.reload()
    expect(row).to_contain_text("was charged since")


def test_days_the_wrong_way_round_are_told_at_the_field(site: Site, watch: Watch) -> None:
    watch.allowed.append("422")
    page = watch.sign_in(site)
    page.goto("/exports")
    page.get_by_label("or from").fill("2025-10-02")
    page.get_by_label("to (inclusive)").fill("2025-09-30")
    page.get_by_role("button", name="Create export").click()
    expect(page.locator("form .errorlist")).to_contain_text("after the start")
    expect(page.get_by_label("or from")).to_have_value("2025-10-02")
