"""The playground in Chromium: sent, streamed, stopped, refused, and told what it cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from playwright.sync_api import Page, Request, Route, expect

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


def _answers(page: Page, stream: Sequence[str]) -> None:
    """Each request is answered with this stream."""
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(content_type="text/event-stream", body="".join(stream)),
    )


def test_the_playground_streams_and_tells_what_it_cost(site: Site, watch: Watch) -> None:
    page = _playground(site, watch)
    page.get_by_label("You", exact=True).fill('Say "hi" & more')
    expect(page.locator("#text-curl")).to_contain_text(r'"content": "Say \"hi\" & more"')
    page.get_by_role("tab", name="curl").press("ArrowRight")
    expect(page.get_by_role("tab", name="Python")).to_be_focused()
    expect(page.locator("#text-python")).to_be_visible()
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-state")).to_have_text("Done")
    expect(page.locator(".said").last).to_contain_text("helpful")
    expect(page.locator(".cost").last).to_contain_text("$")
    expect(page.locator(".ttft").last).to_contain_text("ms")
    link = page.locator(".request a")
    path = str(link.get_attribute("href"))
    wait_for(lambda: page.request.get(path).ok, "row of the request")
    link.click()
    expect(page.locator("main")).to_contain_text("Playground")
    expect(page.locator(".waterfall")).to_be_visible()


def test_an_answer_under_way_stays_with_its_model(site: Site, watch: Watch) -> None:
    page = _playground(site, watch)
    held: list[Route] = []
    page.route("**/v1/chat/completions", lambda route: held.append(route))
    choices = page.get_by_label("Model"), page.get_by_label("Compare with")
    page.get_by_label("You", exact=True).fill("Wait")
    with page.expect_request("**/v1/chat/completions"):
        page.get_by_role("button", name="Send").click()
    for each in choices:
        expect(each).to_be_disabled()
    body = delta(content="Here") + "data: [DONE]\n\n"
    held.pop().fulfill(content_type="text/event-stream", body=body)
    expect(page.locator("#ask-state")).to_have_text("Done")
    for each in choices:
        expect(each).to_be_enabled()


def test_turns_and_parameters_are_sent_and_told_as_code(site: Site, watch: Watch) -> None:
    page = _playground(site, watch)
    sent: list[dict[str, Any]] = []
    page.on("request", lambda request: _note(request, sent))
    page.get_by_label("Compare with").select_option(MODEL)
    page.get_by_text("Parameters, tools").click()
    page.get_by_label("Max tokens").fill("4")
    page.get_by_label("Stop sequences").fill("zebra")
    for question in ("First?", "Second?"):
        page.get_by_label("You", exact=True).fill(question)
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#ask-state")).to_have_text("Done")
        expect(page.get_by_label("You", exact=True)).to_have_value("")
    assert [one["max_tokens"] for one in sent] == [4] * 4
    assert [turn["role"] for turn in sent[-1]["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    expect(page.locator("#side-0 .turn")).to_have_count(4)
    expect(page.locator("#side-1 .turn")).to_have_count(4)
    page.get_by_role("tab", name="Python").click()
    expect(page.locator("#text-python")).to_contain_text("max_tokens=4,")
    expect(page.locator("#text-python")).to_contain_text('"content": "First?",')
    page.get_by_label("Tools, JSON").fill("[")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-error")).to_contain_text("Tools:")
    page.get_by_role("button", name="New conversation").click()
    expect(page.locator(".turn")).to_have_count(0)


def test_results_of_tools_are_sent_back(site: Site, watch: Watch) -> None:
    page = _playground(site, watch)
    sent: list[dict[str, Any]] = []
    page.on("request", lambda request: _note(request, sent))
    call = {"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": '{"city":'}}
    rest = {"index": 0, "function": {"arguments": '"Bern"}'}}
    pieces = [
        event(choices=[{"index": 0, "delta": {"tool_calls": [each]}}]) for each in (call, rest)
    ]
    _answers(page, [*pieces, "data: [DONE]\n\n"])
    page.get_by_text("Parameters, tools").click()
    tool = {"type": "function", "function": {"name": "weather"}}
    page.get_by_label("Tools, JSON").fill(json.dumps([tool]))
    page.get_by_label("You", exact=True).fill("Rain?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".calls code")).to_have_text('weather({"city":"Bern"})')
    page.get_by_label("Tool result").fill("dry")
    page.unroute_all()
    _answers(page, [delta(content="No rain."), "data: [DONE]\n\n"])
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".said").last).to_have_text("No rain.")
    assert sent[-1]["tools"] == [tool]
    assert sent[-1]["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "dry"}
    assert sent[-1]["messages"][-2]["tool_calls"][0]["function"]["arguments"] == '{"city":"Bern"}'


def _note(request: Request, sent: list[dict[str, Any]]) -> None:
    if request.url.endswith("/v1/chat/completions") and request.method == "POST":
        sent.append(request.post_data_json or {})


def test_a_playground_answer_can_be_stopped(site: Site, watch: Watch) -> None:
    page = _playground(site, watch)
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-state")).to_have_text("Streaming")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#ask-state")).to_contain_text("Stopped")
    expect(page.locator(".cost").last).to_contain_text("$")
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
    expect(page.get_by_role("alert")).to_contain_text("context")
    # What was refused is no part of the conversation, and can be changed and sent again.
    page.get_by_label("You", exact=True).fill("Shorter")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-state")).to_have_text("Done")


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
    _answers(page, stream)
    page.get_by_label("You", exact=True).fill("What is 1 + 1?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-state")).to_have_text("Done")
    expect(page.locator(".thoughts").last).to_have_text("One and one.")
    expect(page.locator(".said").last).to_have_text("2")
    expect(page.locator(".ttft").last).to_contain_text("ms")
    expect(page.locator(".tokens").last).to_have_text("9 (0) / 5")


def test_a_new_conversation_has_nothing_of_the_one_that_streamed(site: Site, watch: Watch) -> None:
    page = _playground(site, watch)
    sent: list[dict[str, Any]] = []
    page.on("request", lambda request: _note(request, sent))
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-state")).to_have_text("Streaming")
    page.get_by_role("button", name="New conversation").click()
    page.get_by_label("You", exact=True).fill("Anew?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-state")).to_have_text("Done")
    assert [turn["role"] for turn in sent[-1]["messages"]] == ["system", "user"]


def test_what_could_not_be_sent_is_said_once(site: Site, watch: Watch) -> None:
    watch.allowed.append("503")
    page = _playground(site, watch)
    sent: list[dict[str, Any]] = []
    page.on("request", lambda request: _note(request, sent))
    page.route("**/playground/token", lambda route: route.fulfill(status=503))
    page.get_by_label("You", exact=True).fill("Once?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-error")).to_contain_text("Reload the page")
    page.unroute_all()
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#ask-state")).to_have_text("Done")
    assert [turn["role"] for turn in sent[-1]["messages"]] == ["system", "user"]


def test_code_names_what_the_library_does_not_know_apart(site: Site, watch: Watch) -> None:
    page = _playground(site, watch)
    body = {"model": MODEL, "messages": [], "top_k": 5, "seed": 7}
    said = page.evaluate(
        "async (body) => (await import('/static/sluice/js/code.js')).LANGUAGES.python('', body)",
        body,
    )
    assert '    extra_body={\n        "top_k": 5,\n    },\n' in said
    assert "    seed=7," in said and "    top_k=" not in said


def test_a_form_that_was_refused_keeps_what_its_buttons_do(site: Site, watch: Watch) -> None:
    page = watch.sign_in(site)
    told = json.dumps({"path": "/here", "fields": {"act": ["give"], "who": ["me"]}, "errors": {}})
    form = (
        '<form method="post" action="/here"><input name="who" aria-label="Who">'
        '<button name="act" value="take">Take</button><button name="act" value="give">Give</button>'
        f'</form><script id="refused" type="application/json">{told}</script></main>'
    )

    def fulfil(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace("</main>", form))

    page.route("**/playground", fulfil)
    page.goto("/playground")
    expect(page.get_by_label("Who")).to_have_value("me")
    expect(page.get_by_role("button", name="Take")).to_have_attribute("value", "take")
