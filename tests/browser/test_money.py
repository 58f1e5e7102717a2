"""A month of money in a real browser: ledger, budgets, invoices, wallet and grants."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.site import Site
from tests.browser.watch import PHONE, Watch, check, fits, turn
from tests.support.month import PERIOD

PAST = "month"
LAPTOP = (1280, 900)


def test_a_refused_dialog_keeps_what_was_typed(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/budgets")
    page.get_by_role("button", name="Set a budget").click()
    page.get_by_label("Amount, USD").fill("lots")
    page.get_by_label("Period", exact=True).select_option("day")
    page.get_by_label("Carry over the remainder").check()
    page.get_by_role("button", name="Save").click()
    amount = page.get_by_role("dialog").get_by_label("Amount, USD")
    expect(amount).to_have_value("lots")
    expect(amount).to_be_focused()
    expect(amount).to_have_accessible_description("Must be an amount in US dollars, such as 25.00.")
    expect(page.get_by_label("Period", exact=True)).to_have_value("day")
    expect(page.get_by_label("Carry over the remainder")).to_be_checked()
    # Once: the next page knows nothing of it.
    page.reload()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_head_sorts_the_rows_of_its_table(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/catalog")
    table = page.get_by_role("table").first
    heads = table.get_by_role("columnheader").filter(has=page.get_by_role("button"))
    name = table.get_by_role("button", name="Model")
    expect(heads.first).to_be_visible()
    before = table.locator("tbody th").all_inner_texts()
    assert len(before) > 1
    name.press("Enter")
    expect(table.get_by_role("columnheader", name="Model")).to_have_attribute(
        "aria-sort", "ascending"
    )
    assert table.locator("tbody th").all_inner_texts() == sorted(before, key=str.lower)
    name.press("Enter")
    assert table.locator("tbody th").all_inner_texts() == sorted(before, key=str.lower)[::-1]


def test_a_budget_is_set_with_the_form(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/budgets")
    check(page)
    page.get_by_role("button", name="Set a budget").click()
    page.get_by_label("Amount, USD").fill("250.00")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("The budget is saved")).to_be_visible()
    expect(page.get_by_text("month, Europe/Berlin")).to_be_visible()
    fits(page)


def test_a_month_is_closed_with_the_form(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/ledger")
    expect(page.get_by_role("heading", name="Accounts")).to_be_visible()
    check(page)
    page.get_by_role("button", name="Close a month").click()
    page.get_by_role("button", name="Close month").click()
    expect(page.get_by_text("is closed and accepts no more entries")).to_be_visible()
    fits(page)


def test_a_month_is_issued_and_credited(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/invoices")
    fits(page)
    page.goto(f"/invoices/preview?period={PERIOD}")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Preview of {PERIOD}")
    fits(page)
    page.goto("/invoices")
    page.get_by_role("button", name="Issue an invoice").click()
    page.locator("#issue-period").evaluate(
        "(select, month) => { select.options[0].value = month; select.selectedIndex = 0; }", PERIOD
    )
    page.get_by_role("button", name="Issue invoice").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Invoice INV-000001")
    fits(page)
    with page.expect_download() as download:
        page.get_by_role("link", name="PDF").click()
    assert download.value.suggested_filename == "INV-000001.pdf"
    page.get_by_role("button", name="Credit note").click()
    page.get_by_label("Reason").fill("the wrong model")
    page.get_by_role("button", name="Issue credit note").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Credit note CN-000001")
    turn(page, PHONE, dark=True)
    page.goto("/invoices")
    fits(page)
    page.get_by_role("link", name="INV-000001", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Invoice INV-000001")
    fits(page)


def test_a_wallet_is_filled_and_a_large_grant_waits(site: Site, watch: Watch) -> None:
    watch.allowed.append("422")
    page = watch.sign_in(site)
    page.goto("/wallet")
    fits(page)
    for amount, told in (("250.00", "added for Other"), ("5000", "must approve it")):
        page.goto("/grants")
        page.get_by_label("Organization", exact=True).last.select_option(label="Other")
        page.get_by_label("Amount, USD").fill(amount)
        page.get_by_label("Reason").fill("bank transfer 17")
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("status")).to_contain_text("a second person's approval")
        page.get_by_role("button", name="Add funds").click()
        if amount == "250.00":
            # Other pays by invoice until now; what was typed stays.
            expect(page.get_by_role("alert")).to_contain_text("makes this organization prepaid")
            expect(page.get_by_label("Amount, USD")).to_have_value("250.00")
            page.get_by_label("Make this organization prepaid").check()
            page.get_by_role("button", name="Add funds").click()
        expect(page.get_by_role("status")).to_contain_text(told)
    fits(page)
    # Whoever asked may take it back, and is not offered to approve it.
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    owner = watch.sign_in(site, email="charlie@example.org", size=PHONE)
    owner.goto("/wallet")
    expect(owner.get_by_text("$250.00").first).to_be_visible()
    fits(owner)
    turn(owner, LAPTOP, dark=False)
    fits(owner)
