"""The Templates pages in Chromium: from an empty page to a published version, at desk and phone."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

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


def write(page: Page, body: dict[str, Any]) -> None:
    """The draft as JSON, which is behind its fields."""
    page.locator("summary", has_text="As JSON").click()
    page.locator("#draft-body").fill(json.dumps(body, indent=2))


@pytest.mark.parametrize(("size", "dark"), [(DESK, False), (PHONE, True)])
def test_a_template_is_written_in_fields_by_keyboard(
    site: Site, watch: Watch, size: tuple[int, int], dark: bool
) -> None:
    page = watch.sign_in(site, size=size, dark=dark)
    page.goto("/templates")
    page.locator("[data-opens=new-template]").first.press("Enter")
    page.get_by_label("Name", exact=True).fill(f"fields-{size[0]}")
    page.get_by_role("button", name="Create", exact=True).press("Enter")
    text = page.get_by_label("Text", exact=True)
    expect(text).to_have_count(2)
    text.first.fill("Fixed.")
    text.last.fill("{{question}} In {{words}} words, {{tone}}.")
    page.get_by_role("button", name="Add message").press("Enter")
    expect(page.get_by_label("Role").nth(2)).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Role").nth(1)).to_be_focused()
    page.get_by_label("Role").nth(1).select_option("assistant")
    text.nth(1).fill("Ask me.")
    for name, kind in (("words", "integer"), ("tone", "choice")):
        page.get_by_role("button", name="Add variable").press("Enter")
        page.keyboard.type(name)
        page.get_by_label("Type").last.select_option(kind)
    page.get_by_label("Most", exact=True).nth(1).fill("90")
    page.get_by_label("Default", exact=True).nth(1).fill("20")
    choices = page.get_by_label("Choices, one per line").last
    choices.fill("wrong")
    page.get_by_label("Default", exact=True).last.fill("wrong")
    # Of one type nothing is left for another.
    for kind in ("integer", "choice"):
        page.get_by_label("Type").last.select_option(kind)
    expect(choices).to_have_value("")
    choices.fill("dry, so\nwarm")
    page.get_by_label("Required").last.uncheck()
    fits(page)
    page.get_by_role("button", name="Save draft").press("Enter")
    expect(page.locator("main")).to_contain_text("{{question}} In {{words}} words")
    assert json.loads(page.locator("#draft-body").input_value()) == {
        "messages": [
            {"role": "system", "content": "Fixed."},
            {"role": "assistant", "content": "Ask me."},
            {"role": "user", "content": "{{question}} In {{words}} words, {{tone}}."},
        ],
        "variables": [
            {"name": "question", "chars_max": 2000},
            {"name": "words", "type": "integer", "default": 20, "most": 90},
            {
                "name": "tone",
                "type": "choice",
                "required": False,
                "choices": ["dry, so", "warm"],
            },
        ],
    }
    remove = page.get_by_role("button", name="Remove")
    for _ in range(3):
        remove.last.press("Enter")
    expect(page.get_by_role("button", name="Add variable")).to_be_focused()
    assert "variables" in page.locator("#draft-body").input_value()


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
    write(page, BODY)
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
    write(page, changed)
    page.get_by_role("button", name="Save draft").click()
    expect(page.locator("#difference-title")).to_be_visible()
    page.locator("[data-opens=publish]").click()
    expect(page.get_by_label("What changes")).to_contain_text("-")
    page.keyboard.press("Escape")
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
    write(page, {**BODY, "model": MODEL})
    page.get_by_role("button", name="Save draft").click()
    page.locator("[data-opens=publish]").click()
    page.get_by_role("button", name="Publish to all requests").click()
    page.get_by_role("button", name="Copy to a new draft").click()
    page.wait_for_url(re.compile(f"/templates/{name}/2$"))
    write(page, {**BODY, "model": MODEL, "parameters": {"max_tokens": 3}})
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
