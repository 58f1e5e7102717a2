"""Which form of calls a template shows, and how it gets the calls of earlier turns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference.contract.assets import ASSET_FILES
from inference.text.chat import ChatTemplate
from inference.text.families import FORMS, form_of
from inference.text.model_text import ModelText
from tests.inference.text.tiny import SPECIAL, tiny_tokenizer
from tests.support.families import BOOK, FAMILIES, NOW, ROME, Family, add_tokens

TALK: list[Any] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Two nights in Rome?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "book", "arguments": ROME}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "180 EUR"},
]


def template_of(family: Family) -> ChatTemplate:
    return ChatTemplate(family.template, bos_token="", eos_token="<|end|>")


def test_every_form_has_a_family_that_tests_it() -> None:
    tested = {family.form.name for family in FAMILIES.values()}
    assert tested == {form.name for form in FORMS}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_form_is_known_by_the_template(name: str) -> None:
    family = FAMILIES[name]
    assert form_of(family.template) is family.form
    assert template_of(family).shows_tools


@pytest.mark.parametrize("template", ["{{ messages }}", "{{ tools }} {{ messages }} <tool>"])
def test_of_a_form_that_is_not_known_no_tools_are_shown(template: str) -> None:
    made = ChatTemplate(template, bos_token="", eos_token="")
    assert made.form is None and not made.shows_tools


@pytest.mark.parametrize("name", FAMILIES)
def test_a_talk_with_tools_shows_all_of_them(name: str) -> None:
    template = template_of(FAMILIES[name])
    talk = TALK[1:] if name == "gemma" else TALK
    prompt = template.render(talk, [BOOK, NOW])
    assert all(each in prompt for each in ("maxLength", '"now"', "Two nights", "180 EUR"))
    if name != "smollm3":
        # Its template says nothing of earlier calls.
        assert FAMILIES[name].one in prompt or "functions.book<|channel|>" in prompt
    assert template.render([{"role": "user", "content": "Hi"}]).count("book") == 0


def test_a_plain_talk_is_rendered_as_it_is() -> None:
    gemma = template_of(FAMILIES["gemma"])
    assert gemma.render([{"role": "user", "content": "Hi"}]) == (
        "<start_of_turn>user\nHi<|end|><start_of_turn>model\n"
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_marks_of_calls_are_not_lost(name: str) -> None:
    """Those that are special tokens too, where calls are looked for."""
    family = FAMILIES[name]
    tokenizer = add_tokens(tiny_tokenizer(), family)
    config = {"chat_template": family.template, "eos_token": SPECIAL[1]}
    contents = (tokenizer.to_str().encode(), json.dumps(config).encode())
    text = ModelText.from_files(dict(zip(ASSET_FILES, contents, strict=True)))
    answer = family.two or family.one
    ids = tokenizer.encode(answer, add_special_tokens=False).ids
    decoder = text.decoder(calls=True)
    assert decoder.feed(ids) + decoder.close() == decoder.whole(ids) == answer
    bare = text.decoder().whole(ids)
    assert not any(name in bare for name in family.special)
