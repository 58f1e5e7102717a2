"""The Templates pages in Chromium: from an empty page to a published version, at desk and phone."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.site import Site
from tests.browser.watch import DESK, PHONE, Watch, fits

BODY = {
    "messages": [
        {"role": "system", "content": "You answer questions about the handbook. " * 8},
        {"role": "user", "content": "{{context}}\n\n{{question}} In a {{tone}} tone."},
    ],
    "variables": [
        {"name": "context", "chars_max": 20000},
        {"name": "question"},
        {"name": "tone", "type": "choice", "choices": ["dry", "warm"], "default": "dry"},
    ],
}


@pytest.mark.parametrize(("size", "dark"), [(DESK, False), (PHONE, True)])
def test_a_template_is_made_tried_and_published(
    site: Site, watch: Watch, size: tuple[int, int], dark: bool
) -> None:
    page = watch.sign_in(site, size=size, dark=dark)
    name = f"support-{size[0]}"
    page.goto("/templates")
    fits(page)
    page.locator("[data-opens=new-template]").first.click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url(re.compile(f"/templates/{name}/1$"))
    page.locator("#draft-body").fill(json.dumps(BODY, indent=2))
    page.get_by_role("button", name="Save draft").click()
    expect(page.locator("main")).to_contain_text("will not cache")
    page.locator("#value-question").fill("Where do I park?")
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("main")).to_contain_text("Where do I park? In a dry tone.")
    fits(page)
    page.locator("[data-opens=publish]").click()
    page.get_by_role("button", name="Publish to all requests").click()
    expect(page.locator("main .status.ok").first).to_have_text("published")
    page.get_by_role("button", name="Copy to a new draft").click()
    page.wait_for_url(re.compile(f"/templates/{name}/2$"))
    changed = {**BODY, "messages": [{"role": "system", "content": "{{question}}"}]}
    page.locator("#draft-body").fill(json.dumps(changed))
    page.get_by_role("button", name="Save draft").click()
    expect(page.locator("#difference-title")).to_be_visible()
    fits(page)
    page.goto("/templates")
    expect(page.locator("main")).to_contain_text(name)
    fits(page)
