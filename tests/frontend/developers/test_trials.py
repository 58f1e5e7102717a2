"""Trials of templates through Django's client: what both versions would send, and to whom."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.test import Client

from controlplane.catalog.prompts import PromptVersions, prompt_create
from controlplane.contents.replay import KeptChat
from controlplane.core.permissions import Role
from controlplane.tenants.people.services import membership_set
from frontend.developers import trial_views
from tests.support.people import Cast, make_cast, signed_in

PATH = "/templates/support/trial"
BODY = re.compile(r'data-body="([^"]*)"')
FIRST = {
    "messages": [{"role": "system", "content": "Be brief: {{question}}"}],
    "variables": [{"name": "question", "chars_max": 20}],
}
SECOND = {
    "model": "maxi",
    "parameters": {"max_tokens": 700, "temperature": 0.5},
    "tools": [{"id": "weather", "version": 1}],
    "messages": [{"role": "user", "content": "{{question}} {{tone}}"}],
    "variables": [
        {"name": "question", "chars_max": 5},
        {"name": "tone", "type": "choice", "choices": ["dry", "warm"], "default": "dry"},
    ],
}


@pytest.fixture
def cast(database: str) -> Cast:
    """People, and a template of two drafts."""
    made = make_cast()
    template = prompt_create(actor=made.bob, organization_id=made.acme.id, name="support")
    versions = PromptVersions(made.bob, template)
    for body in (FIRST, SECOND):
        versions.draft_create(body)
    return made


@pytest.fixture
def bob(cast: Cast) -> Client:
    """A developer."""
    return signed_in(cast.bob)


def fields(cast: Cast, **more: str) -> dict[str, str]:
    asked = {"first": "1", "second": "2", "project": str(cast.project.id), "model": "mini"}
    return {**asked, "tokens": "64", "count": "2", "source": "values", **more}


def sent(answer: Any) -> list[dict[str, Any]]:
    """Bodies that the page would send, in its order."""
    page = answer.content.decode()
    return [json.loads(html.unescape(each)) for each in BODY.findall(page)]


def test_both_versions_are_filled_with_the_same_values_within_the_bounds(
    cast: Cast, bob: Client
) -> None:
    page = bob.get(PATH)
    assert page.status_code == 200 and not sent(page)
    typed = {"value-question": "Hi?", "value-tone": "warm"}
    one, other = sent(bob.post(PATH, fields(cast, **typed)))
    assert one["messages"] == [{"role": "system", "content": "Be brief: Hi?"}]
    assert other["messages"] == [{"role": "user", "content": "Hi? warm"}]
    assert (one["model"], other["model"]) == ("mini", "maxi")
    assert (one["max_tokens"], other["max_tokens"], other["temperature"]) == (64, 64, 0.5)
    assert other["stored_tools"] == [{"id": "weather", "version": 1}] and "tools" not in one
    assert one["stream"] and one["stream_options"] == {"include_usage": True}


def test_a_version_that_refuses_the_values_says_so_and_is_not_asked(
    cast: Cast, bob: Client
) -> None:
    answer = bob.post(PATH, fields(cast, **{"value-question": "Too long", "value-tone": "dry"}))
    assert len(sent(answer)) == 1
    assert "Refused: question" in answer.content.decode()


def test_kept_requests_are_asked_by_both_with_what_they_said_themselves(
    cast: Cast, bob: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        "prompt": {"id": "support", "variables": {"question": "Hi?"}},
        "messages": [{"role": "user", "content": "And now?"}],
        "temperature": 0.1,
        "stream": False,
        "user": "ann",
    }
    kept = KeptChat("req_" + "0" * 32, {"question": "Hi?"}, said)
    monkeypatch.setattr(trial_views, "kept_chats", lambda **asked: [kept] * asked["count_max"])
    bodies = sent(bob.post(PATH, fields(cast, source="kept")))
    assert len(bodies) == 4
    assert [body["messages"][-1]["content"] for body in bodies] == ["And now?"] * 4
    assert {body["temperature"] for body in bodies} == {0.1}
    assert not any("user" in body or "prompt" in body for body in bodies)


@pytest.mark.parametrize(("field", "text"), [("tokens", "513"), ("tokens", "x"), ("count", "6")])
def test_what_is_beyond_a_bound_is_named(cast: Cast, bob: Client, field: str, text: str) -> None:
    answer = bob.post(PATH, fields(cast, **{field: text}))
    assert answer.status_code == 422 and not sent(answer)
    assert "Must be a whole number" in answer.content.decode()


def test_who_may(cast: Cast, bob: Client) -> None:
    assert signed_in(cast.charlie).get(PATH).status_code == 404
    theirs = fields(cast, project=str(cast.other_project.id))
    assert bob.post(PATH, theirs).status_code == 404
    made = prompt_create(actor=cast.bob, organization_id=cast.acme.id, name="weather")
    PromptVersions(cast.bob, made).draft_create({"tool": {"description": "Tells."}})
    assert bob.get("/templates/weather/trial").status_code == 404
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.bob, role=Role.VIEWER)
    assert bob.get(PATH).status_code == 403
