"""The Templates pages in Chromium: from an empty page to a published version, at desk and phone."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.site import Site
from tests.browser.watch import DESK, PHONE, Watch, fits
from tests.support.fleet import MODEL

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


@pytest.mark.parametrize(("size", "dark"), [(DESK, False), (PHONE, True)])
def test_two_versions_are_asked_and_compared_by_keyboard(
    site: Site, watch: Watch, size: tuple[int, int], dark: bool
) -> None:
    page = watch.sign_in(site, size=size, dark=dark)
    name = f"trial-{size[0]}"
    page.goto("/templates")
    page.locator("[data-opens=new-template]").first.click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url(re.compile(f"/templates/{name}/1$"))
    page.locator("#draft-body").fill(json.dumps({**BODY, "model": MODEL}))
    page.get_by_role("button", name="Save draft").click()
    page.locator("[data-opens=publish]").click()
    page.get_by_role("button", name="Publish to all requests").click()
    page.get_by_role("button", name="Copy to a new draft").click()
    page.wait_for_url(re.compile(f"/templates/{name}/2$"))
    page.locator("#draft-body").fill(
        json.dumps({**BODY, "model": MODEL, "parameters": {"max_tokens": 3}})
    )
    page.get_by_role("button", name="Save draft").click()
    page.get_by_role("link", name="Trial").press("Enter")
    page.wait_for_url(re.compile(f"/templates/{name}/trial"))
    expect(page.get_by_label("First version")).to_have_value("1")
    expect(page.get_by_label("Second version")).to_have_value("2")
    fits(page)
    page.get_by_label("question").fill("Where do I park?")
    page.get_by_label("Max. tokens per answer").fill("9")
    page.get_by_role("button", name="Preview messages").press("Enter")
    sides = page.locator("[data-side]")
    expect(sides).to_have_count(2)
    expect(sides.last).to_contain_text("Where do I park? In a dry tone.")
    page.get_by_role("button", name="Run").press("Enter")
    expect(page.locator("#trial-state")).to_have_text("Done")
    expect(page.locator(".differs")).to_contain_text("The answers agree in")
    expect(page.locator(".differs")).to_contain_text("is shorter, by 6 tokens")
    for each in (".ttft", ".cost"):
        expect(sides.last.locator(each)).to_contain_text("ms" if each == ".ttft" else "$")
    assert sides.last.locator(".tokens").inner_text().endswith("/ 3")
    fits(page)
