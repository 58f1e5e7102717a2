"""Routing in Chromium: readable at both sizes, usable by keyboard, from a draft to publication."""

from __future__ import annotations

import json
from functools import partial

from playwright.sync_api import Page, expect

from controlplane.catalog.selectors import model_list
from controlplane.catalog.services import ModelDraft, PriceDraft, model_create, price_publish
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.routing.selectors import ruleset_in_force
from controlplane.routing.services import RuleVersions
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.sign_in.accounts import setup_link_consume, setup_link_create
from tests.browser.site import PASSWORD, Site, elsewhere
from tests.browser.watch import Watch, check, fits
from tests.support.rules import generates, publish

LARGE = "large"


def let_stella_in(site: Site) -> None:
    """Staff with a password and an organization to look at, and a second model."""
    cast = site.cast
    if not cast.stella.has_usable_password():
        token = setup_link_create(actor=OPERATOR, user=cast.stella)
        cast.stella.password = setup_link_consume(token=token, password=PASSWORD).password
        membership_set(actor=cast.alice, organization=cast.acme, user=cast.stella, role=Role.VIEWER)
    if LARGE not in {model.name for model in model_list()}:
        wanted = ModelDraft(
            name=LARGE,
            pool="default",
            context_window=4_096,
            output_tokens_default=64,
            output_tokens_max=1_024,
        )
        prices = PriceDraft(input_pico=1_500_000, cached_pico=150_000, output_pico=6_000_000)
        price_publish(
            actor=OPERATOR, model=model_create(actor=OPERATOR, draft=wanted), draft=prices
        )


def staff(site: Site, watch: Watch) -> Page:
    elsewhere(partial(let_stella_in, site))
    return watch.sign_in(site, email="stella@example.org")


def test_pages_are_accessible_and_fit(site: Site, watch: Watch) -> None:
    page = staff(site, watch)

    def fill() -> int:
        current = ruleset_in_force()
        if current is None:
            publish(generates("chat", "tiny", aliases=["tiny", "chat"]))
        long = generates("long", LARGE, aliases=["tiny"], prompt_tokens_min=700)
        long["steps"].append({"targets": [{"model": "tiny"}], "queue_s": 0})
        wrong = generates("wrong", "none-such")
        return RuleVersions(OPERATOR).draft_create([long, wrong]).version

    version = elsewhere(fill)
    for path in ("/routing", f"/routing/{version}", f"/routing/{version}/dry-run?hours=6"):
        page.goto(path)
        check(page)
    expect(page.get_by_role("heading", name="Moves")).to_be_visible()


def test_a_draft_is_written_by_keyboard_and_published(site: Site, watch: Watch) -> None:
    page = staff(site, watch)
    page.goto("/routing")
    page.get_by_role("button", name="New draft").press("Enter")
    page.get_by_role("button", name="Edit as JSON").press("Enter")
    editor = page.get_by_label("Rules, as JSON")
    editor.fill("[{")
    watch.allowed.append("422")
    page.get_by_role("button", name="Save draft").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Invalid JSON")
    expect(page.get_by_role("alert")).to_be_focused()
    expect(editor).to_have_value("[{")
    editor.fill(json.dumps([generates("up", LARGE, aliases=["chat"])]))
    editor.press("Tab")
    expect(editor).not_to_be_focused()
    page.get_by_role("button", name="Save draft").press("Enter")
    expect(page.locator("#draft-form").get_by_text("model = chat and task")).to_be_visible()
    page.get_by_role("button", name="Publish", exact=True).press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_hidden()
    page.get_by_role("button", name="Publish", exact=True).press("Enter")
    page.get_by_role("button", name="Publish to all requests").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("is live; gateways apply it")


def test_a_canary_is_beside_what_is_in_force(site: Site, watch: Watch) -> None:
    page = staff(site, watch)

    def start() -> None:
        made = RuleVersions(OPERATOR).draft_create([generates("all", LARGE)])
        RuleVersions(OPERATOR).canary_start(made, share_permille=50)

    elsewhere(start)
    page.goto("/routing")
    fits(page)
    page.get_by_role("button", name="Stop canary").click()
    page.get_by_label("Reason").fill("only a test")
    page.get_by_role("dialog").get_by_role("button", name="Stop canary").click()
    expect(page.get_by_role("status")).to_contain_text("has ended")


def test_a_rule_is_built_by_keyboard_and_published_after_a_look_at_its_diff(
    site: Site, watch: Watch
) -> None:
    page = staff(site, watch)
    page.goto("/routing")
    page.get_by_role("button", name="New draft").press("Enter")

    def press(name: str, focused: str) -> None:
        page.get_by_role("button", name=name, exact=True).press("Enter")
        expect(page.locator(focused)).to_be_focused()

    number = page.locator("fieldset.panel").count()
    press("Add rule", f"#rule-{number}")
    page.keyboard.press("Tab")
    page.keyboard.type("by-keyboard")
    page.keyboard.press("Tab")
    page.keyboard.type("fast, chat-fast")
    expect(page.get_by_label("generate", exact=True)).to_be_checked()
    page.get_by_label("Model", exact=True).select_option(LARGE)
    press(f"Add step {number + 1}", f"#rule-{number}-steps-1")
    page.get_by_label("Model", exact=True).nth(1).select_option("tiny")
    press(f"Move step 2 of rule {number + 1} up", f"#up-{number}-0")
    check(page)
    page.get_by_role("button", name="Save draft").press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("is saved")
    page.get_by_role("button", name="Publish", exact=True).press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("added by-keyboard")
    expect(dialog).to_contain_text("step 1: tiny, waits up to 30 s")
    page.get_by_role("button", name="Publish to all requests").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("is live; gateways apply it")
