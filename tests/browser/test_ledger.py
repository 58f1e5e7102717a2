"""Ledger and Budgets in a real browser: read, set a budget, close a month, on desk and phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site, elsewhere
from tests.browser.watch import DESK, PHONE, Watch, serious_findings, wider_than_screen
from tests.support.month import seal_month, seed_month

HISTORY = False


@pytest.fixture(autouse=True, scope="module")
def seeded(site: Site) -> None:
    """A month of charges and entries."""

    def seed() -> None:
        seed_month(site.cast)
        seal_month()

    elsewhere(seed)


def _look(page: Page) -> None:
    assert serious_findings(page) == []
    assert not wider_than_screen(page)


def test_a_budget_is_set_with_the_form(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site, size=DESK)
    page.goto("/budgets")
    _look(page)
    page.get_by_role("button", name="Set a budget").click()
    page.get_by_label("Amount, USD").fill("250.00")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("The budget is saved")).to_be_visible()
    expect(page.get_by_text("month, Europe/Berlin")).to_be_visible()
    _look(page)


def test_a_month_is_closed_with_the_form(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site, size=DESK)
    page.goto("/ledger")
    expect(page.get_by_role("heading", name="Accounts")).to_be_visible()
    _look(page)
    page.get_by_role("button", name="Close a month").click()
    page.get_by_role("button", name="Close month").click()
    expect(page.get_by_text("is closed and accepts no more entries")).to_be_visible()
    _look(page)


@pytest.mark.parametrize("path", ["/ledger", "/budgets"])
def test_they_fit_a_phone(site: Site, watch: Watch, path: str) -> None:
    page = watch.sign_in(site, size=PHONE)
    page.goto(path)
    _look(page)
