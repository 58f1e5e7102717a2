"""The developer's pages in Chromium: snippets, admin keys, and the reference that tries itself."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.site import Site
from tests.browser.watch import DESK, PHONE, Watch, serious_findings, turn, wider_than_screen

# What is around the operations, each of which looks as the first of its method.
FRAME = (".page-head", ".information-container", ".filter", "h3.opblock-tag")
METHODS = ("get", "post", "put", "patch", "delete")


def test_an_admin_key_is_made_shown_once_and_revoked(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/admin-keys")
    page.get_by_role("button", name="Create the first admin key").click()
    page.get_by_label("Label").fill("cost report")
    for scope in ("ledger.view", "request.view"):
        page.get_by_role("group", name="Scopes").locator(f"[value='{scope}']").press("Space")
    page.get_by_role("dialog").get_by_role("button", name="Create admin key").click()
    secret = page.locator("#new-key").inner_text()
    assert secret.startswith("admin_sluice_")
    answer = page.request.get(
        f"{site.url}/v1/organization/projects", headers={"authorization": f"Bearer {secret}"}
    )
    names = {one["name"] for one in answer.json()["data"]}
    assert "web" in names and "secret" not in names
    page.get_by_role("link", name="Done, hide it").click()
    expect(page.locator("#new-key")).to_have_count(0)
    assert secret not in page.content()
    page.get_by_role("button", name=re.compile("^Revoke")).first.click()
    page.get_by_role("button", name="Revoke the key").click()
    expect(page.locator("tbody .status").first).to_have_text("revoked")
    refused = page.request.get(
        f"{site.url}/v1/organization/projects", headers={"authorization": f"Bearer {secret}"}
    )
    assert refused.status == 401


def test_the_reference_is_readable_in_both_themes_and_tries_an_operation(
    site: Site, watch: Watch
) -> None:
    page = watch.sign_in(site)
    page.goto("/developers/api")
    # All groups are closed at first, so that the page is light.
    groups = page.locator(".opblock-tag .expand-operation")
    expect(groups.first).to_be_visible()
    assert page.locator(".opblock").count() == 0
    for group in groups.all():
        group.press("Enter")
    opened = page.locator(".opblock-post").first
    opened.locator(".opblock-summary-control").press("Enter")
    expect(opened.locator(".opblock-body")).to_be_visible()
    assert serious_findings(page, "nested-interactive", "label") == []
    kinds = [page.locator(f".opblock-{method}").first for method in METHODS]
    parts = [*FRAME, *(f"[id='{kind.get_attribute('id')}']" for kind in kinds)]
    for dark in (False, True):
        turn(page, DESK, dark)
        # The reference is not ours to make accessible in all else.
        assert serious_findings(page, "color-contrast", within=parts) == []
    operation = page.locator("#operations-organization-organization_projects_get")
    operation.scroll_into_view_if_needed()
    operation.locator(".opblock-summary").click()
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table")).to_contain_text('"web"')
    turn(page, PHONE, dark=True)
    assert wider_than_screen(page) <= 0
