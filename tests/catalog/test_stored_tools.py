"""Stored tools, what templates ask with, and texts of other templates in their messages."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from controlplane.catalog import prompts
from controlplane.catalog.models import PromptTemplate, PromptVersion
from controlplane.catalog.selectors import body_of, prompt_dry_run, prompt_problems
from controlplane.core.permissions import organization_scope
from tests.support.people import Cast, make_cast
from tests.support.rules import make_models

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"tool": {"description": "The weather in a city.", "parameters": SCHEMA}}


@pytest.fixture
def cast(database: str) -> Cast:
    make_models("small")
    return make_cast()


def make(cast: Cast, name: str) -> PromptTemplate:
    return prompts.prompt_create(actor=cast.bob, organization_id=cast.acme.id, name=name)


def draft(cast: Cast, name: str, body: dict[str, Any]) -> PromptVersion:
    return prompts.PromptVersions(cast.bob, make(cast, name)).draft_create(body)


def published(cast: Cast, name: str, body: dict[str, Any]) -> PromptVersion:
    made = draft(cast, name, body)
    return prompts.PromptVersions(cast.bob, made.template).publish(made)


def says(*texts: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": text} for text in texts], **more}


def problems(cast: Cast, version: PromptVersion) -> dict[str, bool]:
    with organization_scope([cast.acme.id]):
        return {one.field: one.warning for one in prompt_problems(version)}


def test_a_tool_lives_as_templates_do(cast: Cast) -> None:
    made = published(cast, "weather", WEATHER)
    assert (made.version, made.state, made.body) == (1, "published", WEATHER)
    tried = prompt_dry_run(body_of(made), {})
    assert tried.messages == () and tried.tokens > 20
    versions = prompts.PromptVersions(cast.bob, made.template)
    second = versions.publish(versions.draft_create({"tool": {"description": "Other."}}))
    back = versions.rollback()
    assert (second.version, back.version, back.body) == (2, 3, WEATHER)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tool": {"description": "x", "parameters": {"type": "array"}}}, "tool.parameters.type"),
        ({"tool": {"description": "x", "parameters": {"type": "thing"}}}, "tool.parameters"),
        ({"tool": {"description": "x" * 40_000}}, "tool"),
        ({**WEATHER, **says("x")}, "tool"),
        (says("x", tools=[{"id": "gone"}]), "tools[0]"),
        (says("x", tools=[{"id": "weather"}, {"id": "weather"}]), "tools[1].id"),
        (says("x", tools=[{"id": "weather", "version": 7}]), "tools[0]"),
        (
            says("x", response_format={"json_schema": {"schema": {"type": "thing"}}}),
            "response_format.json_schema.schema",
        ),
    ],
)
def test_what_is_wrong_keeps_it_from_being_published(
    cast: Cast, body: dict[str, Any], field: str
) -> None:
    published(cast, "weather", WEATHER)
    made = draft(cast, "wrong", body)
    assert problems(cast, made)[field] is False
    with pytest.raises(ValidationError) as caught:
        prompts.PromptVersions(cast.bob, made.template).publish(made)
    assert f"body.{field}" in caught.value.message_dict


def test_parameters_are_bounded_by_their_fields(cast: Cast) -> None:
    with pytest.raises(ValidationError) as caught:
        draft(cast, "hot", says("x", parameters={"temperature": 3}))
    assert list(caught.value.message_dict) == ["body.parameters.temperature"]
    made = draft(cast, "warm", says("x", model="other", parameters={"temperature": 1.5}))
    assert problems(cast, made) == {"model": True}
    assert body_of(made).settings == {"temperature": 1.5, "model": "other"}


def test_a_template_takes_the_text_of_another_at_a_version(cast: Cast) -> None:
    tone = {"name": "tone", "default": "dry"}
    style = published(cast, "style", says("Be {{tone}}.", variables=[tone]))
    made = published(cast, "support", says("First.", "{{> style}}\nThen help."))
    body = body_of(made)
    assert [one.content for one in body.messages] == ["First.", "Be {{tone}}.\nThen help."]
    assert [one.content for one in body.source] == ["First.", "{{> style:1}}\nThen help."]
    assert [one.name for one in body.variables] == ["tone"]
    # What was published does not change with it; a draft that is saved again takes the version
    # that it names.
    styles = prompts.PromptVersions(cast.bob, style.template)
    styles.publish(styles.draft_create(says("Be kind.")))
    versions = prompts.PromptVersions(cast.bob, made.template)
    again = versions.draft_create(made.body)
    assert body_of(again).messages == body.messages
    newest = versions.draft_create(says("{{> style}}"))
    assert [one.content for one in body_of(newest).messages] == ["Be kind."]


def test_only_published_texts_of_others_go_in(cast: Cast) -> None:
    draft(cast, "unready", says("x"))
    published(cast, "weather", WEATHER)
    support = published(cast, "support", says("Mine."))
    versions = prompts.PromptVersions(cast.bob, support.template)
    for named in ("gone", "unready", "weather", "support", "support:1", "unready:1"):
        with pytest.raises(ValidationError) as caught:
            versions.draft_create(says(f"{{{{> {named}}}}}"))
        assert list(caught.value.message_dict) == ["body.source[0].content"]


def test_what_goes_in_counts_in_the_bound(cast: Cast) -> None:
    published(cast, "long", says("x" * 40_000))
    made = draft(cast, "twice", says("{{> long}}", "{{> long}}"))
    assert problems(cast, made)["messages"] is False
