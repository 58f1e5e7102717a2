"""The playground with a model that thinks before it answers."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import expect

from tests.browser.site import Site
from tests.browser.watch import Watch


def event(**fields: Any) -> str:
    return f"data: {json.dumps(fields)}\n\n"


def delta(**fields: str) -> str:
    return event(choices=[{"index": 0, "delta": fields}])


def test_what_a_model_thought_is_shown_apart_from_its_answer(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    page.goto("/playground")
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
