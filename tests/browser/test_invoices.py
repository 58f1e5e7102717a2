"""Invoices, wallet and grants in a real browser: issue, look, credit, top up, on desk and phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from controlplane.tenants.models import User
from tests.browser.site import Site, elsewhere
from tests.browser.watch import DESK, PHONE, Watch, serious_findings, wider_than_screen
from tests.support.month import PERIOD, seal_month, seed_month

HISTORY = False


@pytest.fixture(autouse=True, scope="module")
def seeded(site: Site) -> None:
    """A month to invoice, and Alice runs the installation, too."""

    def seed() -> None:
        User.objects.filter(id=site.cast.alice.id).update(is_staff=True)
        seed_month(site.cast)
        seal_month()

    elsewhere(seed)


def _look(page: Page) -> None:
    assert serious_findings(page) == []
    assert not wider_than_screen(page)


def test_a_month_is_issued_and_credited(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site, size=DESK)
    page.goto("/invoices")
    _look(page)
    page.goto(f"/invoices/preview?period={PERIOD}")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Preview of {PERIOD}")
    _look(page)
    page.goto("/invoices")
    page.get_by_role("button", name="Issue an invoice").click()
    page.locator("#issue-period").evaluate(
        "(select, month) => { select.options[0].value = month; select.selectedIndex = 0; }", PERIOD
    )
    page.get_by_role("button", name="Issue invoice").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Invoice INV-000001")
    _look(page)
    with page.expect_download() as download:
        page.get_by_role("link", name="PDF").click()
    assert download.value.suggested_filename == "INV-000001.pdf"
    page.get_by_role("button", name="Credit note").click()
    page.get_by_label("Reason").fill("the wrong model")
    page.get_by_role("button", name="Issue credit note").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Credit note CN-000001")
    phone = watch.sign_in(site, size=PHONE, dark=True)
    phone.goto("/invoices")
    _look(phone)
    phone.get_by_role("link", name="INV-000001", exact=True).click()
    expect(phone.get_by_role("heading", level=1)).to_have_text("Invoice INV-000001")
    _look(phone)


def test_a_wallet_is_filled_and_a_large_grant_waits(site: Site, watch: Watch) -> None:
    watch.allowed.append("422")
    page = watch.sign_in(site, size=DESK)
    page.goto("/wallet")
    _look(page)
    for amount, told in (("250.00", "added for Other"), ("5000", "must approve it")):
        page.goto("/grants")
        page.get_by_label("Organization", exact=True).last.select_option(label="Other")
        page.get_by_label("Amount, USD").fill(amount)
        page.get_by_label("Reason").fill("bank transfer 17")
        page.get_by_role("button", name="Add funds").click()
        if amount == "250.00":
            # Other pays by invoice until now; what was typed stays.
            expect(page.get_by_role("alert")).to_contain_text("makes this organization prepaid")
            expect(page.get_by_label("Amount, USD")).to_have_value("250.00")
            page.get_by_label("Make this organization prepaid").check()
            page.get_by_role("button", name="Add funds").click()
        expect(page.get_by_role("status")).to_contain_text(told)
    _look(page)
    # Whoever asked may take it back, and is not offered to approve it.
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    owner = watch.sign_in(site, email="charlie@example.org", size=PHONE)
    owner.goto("/wallet")
    expect(owner.get_by_text("$250.00").first).to_be_visible()
    _look(owner)
    owner.set_viewport_size({"width": 1280, "height": 900})
    _look(owner)
