"""The playground in Chromium: sent, streamed, stopped, refused, and told what it cost."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.site import Site
from tests.browser.watch import Watch
from tests.support.fleet import MODEL
from tests.support.waiting import wait_for


def event(**fields: Any) -> str:
    return f"data: {json.dumps(fields)}\n\n"


def delta(**fields: str) -> str:
    return event(choices=[{"index": 0, "delta": fields}])


def _playground(site: Site, watch: Watch) -> Page:
    page = watch.sign_in(site)
    page.goto("/playground")
    page.get_by_label("Model").select_option(MODEL)
    return page


def test_the_playground_streams_and_tells_what_it_cost(site: Site, watch: Watch) -> None:
    page = _playground(site, watch)
    page.get_by_label("You", exact=True).fill('Say "hi" & more')
    expect(page.locator("#text-curl")).to_contain_text(r'"content": "Say \"hi\" & more"')
    page.get_by_role("tab", name="curl").press("ArrowRight")
    expect(page.get_by_role("tab", name="Python")).to_be_focused()
    expect(page.locator("#text-python")).to_be_visible()
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-state")).to_have_text("Done")
    expect(page.locator("#answer")).to_contain_text("helpful")
    expect(page.locator("#ask-cost")).to_contain_text("$")
    expect(page.locator("#ask-ttft")).to_contain_text("ms")
    link = page.locator("#ask-request a")
    path = str(link.get_attribute("href"))
    wait_for(lambda: page.request.get(path).ok, "row of the request")
    link.click()
    expect(page.locator("main")).to_contain_text("Playground")
    expect(page.locator(".waterfall")).to_be_visible()


def test_a_playground_answer_can_be_stopped(site: Site, watch: Watch) -> None:
    page = _playground(site, watch)
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-state")).to_have_text("Streaming")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#ask-state")).to_contain_text("Stopped")
    expect(page.locator("#ask-cost")).to_contain_text("$")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_an_empty_message_is_asked_for(site: Site, watch: Watch) -> None:
    page = _playground(site, watch)
    page.get_by_label("You", exact=True).fill("  ")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-error")).to_have_text("Write a message first.")


def test_a_refusal_is_shown_in_the_gateways_words(site: Site, watch: Watch) -> None:
    watch.allowed.append("400")
    page = _playground(site, watch)
    page.get_by_label("You", exact=True).fill("x" * 6_000)
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-error")).to_contain_text("context")


def test_what_a_model_thought_is_shown_apart_from_its_answer(site: Site, watch: Watch) -> None:
    page = _playground(site, watch)
    usage = {"prompt_tokens": 9, "completion_tokens": 5}
    stream = (
        delta(reasoning_content="One and "),
        delta(reasoning_content="one."),
        delta(content="2"),
        event(choices=[], usage=usage),
        "data: [DONE]\n\n",
    )
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(content_type="text/event-stream", body="".join(stream)),
    )
    expect(page.locator("#thoughts")).to_be_hidden()
    page.get_by_label("You", exact=True).fill("What is 1 + 1?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-state")).to_have_text("Done")
    expect(page.locator("#thoughts")).to_have_text("One and one.")
    expect(page.locator("#answer")).to_have_text("2")
    expect(page.locator("#ask-ttft")).to_contain_text("ms")
    expect(page.locator("#ask-tokens")).to_have_text("9 (0) / 5")
