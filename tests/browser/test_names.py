"""Names as long as they may be, and rows of another day: tables stay within the screen."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from playwright.sync_api import Page, expect

from controlplane.tenants.keys import apikey_create
from controlplane.tenants.models import NAME_CHARS_MAX
from tests.browser.history import HOURS, write_history
from tests.browser.site import Site, elsewhere
from tests.browser.watch import PHONE, Watch, turn, wider_than_screen

LAPTOP = (1280, 800)
YESTERDAY_S = 25 * 3_600
MINUTE = "%Y-%m-%dT%H:%M"
OWNER = "charlie@example.org"
MODEL = "an-organization/a-mixture-of-experts-model-of-235b-a22b-instruct-fp8-".ljust(
    NAME_CHARS_MAX, "x"
)
LABEL = "W" * NAME_CHARS_MAX


@pytest.fixture(scope="module")
def named(site: Site) -> Site:
    """Requests of an hour ago and of yesterday, by a key and of a model with the longest names.

    They are Charlie's, whose organization has no others.
    """
    cast = replace(site.cast, acme=site.cast.other, project=site.cast.other_project)
    create = partial(apikey_create, actor=cast.charlie, project=cast.project, label=LABEL)
    key = elsewhere(create).key
    for age_s in (0, YESTERDAY_S):
        elsewhere(partial(write_history, cast, key, MODEL, age_s=age_s))
    return site


def cut_cells(page: Page) -> list[str]:
    """Cells of the table that end beyond its panel's edge."""
    found: list[str] = page.evaluate(
        "() => { const panel = document.querySelector('.panel.flush');"
        " const edge = panel.getBoundingClientRect().right + 1;"
        " return [...panel.querySelectorAll('tbody tr:first-child > *')]"
        " .filter((cell) => cell.getBoundingClientRect().right > edge)"
        " .map((cell) => cell.dataset.label); }"
    )
    return found


@pytest.mark.parametrize("path", ["/requests?range=6h", "/keys"])
def test_long_names_hide_no_column(named: Site, watch: Watch, path: str) -> None:
    page = watch.sign_in(named, email=OWNER)
    page.goto(path)
    for size in (LAPTOP, PHONE):
        turn(page, size, dark=False)
        expect(page.locator(f"[title='{LABEL}']").first).to_be_visible()
        assert wider_than_screen(page) <= 0
        assert cut_cells(page) == []


def test_a_row_of_another_day_names_its_day(named: Site, watch: Watch) -> None:
    page = watch.sign_in(named, email=OWNER)
    before = datetime.now(UTC) - timedelta(seconds=YESTERDAY_S)
    since = before - timedelta(hours=HOURS)
    page.goto(f"/requests?from={since:{MINUTE}}&to={before:{MINUTE}}")
    older = page.get_by_role("link", name="Older")
    address = older.get_attribute("href")
    older.click()
    expect(page.locator(f"a[href='{address}']", has_text="Older")).to_have_count(0)
    oldest = page.locator("#results tbody tr").last.locator("time")
    expect(oldest).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$"))
