"""Which of a checkpoint's chat templates is rendered, held against `transformers` on one folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from inference.contract.assets import ASSET_FILES, TEMPLATE_FILE, TOOL_TEMPLATE_FILE, asset_digest
from inference.errors import ModelError
from inference.node.assets import ModelAssets
from inference.text.chat import ChatMessage
from inference.text.model_text import ModelText
from tests.inference.text.tiny import tiny_files, tiny_tokenizer

MESSAGES: list[ChatMessage] = [{"role": "user", "content": "two nights"}]
TOOL = {"type": "function", "function": {"name": "book", "parameters": {}}}
PLAIN, TOOLS = "plain {{ messages[0].content }}", "<tool_call> {{ (tools or []) | length }}"
NAMED = [
    {"name": name, "template": text} for name, text in (("default", PLAIN), ("tool_use", TOOLS))
]


def folder_of(path: Path, files: dict[str, str], **config: object) -> Path:
    for name, data in tiny_files(**config).items():
        (path / name).write_bytes(data)
    for name, text in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text)
    return path


def text_of(folder: Path) -> ModelText:
    """As a gateway has it: of the parts that a node sends."""
    assets = ModelAssets(folder)
    files: dict[str, bytes] = {}
    for part in assets.parts(assets.digest):
        files[part.name] = files.get(part.name, b"") + part.data
    assert asset_digest(files) == assets.digest
    return ModelText.from_files(files)


@pytest.mark.parametrize(
    ("files", "config"),
    [
        ({}, {"chat_template": PLAIN}),
        ({TEMPLATE_FILE: PLAIN}, {"chat_template": None}),
        ({TEMPLATE_FILE: PLAIN}, {"chat_template": "older"}),
        ({}, {"chat_template": NAMED}),
        ({TEMPLATE_FILE: PLAIN, TOOL_TEMPLATE_FILE: TOOLS}, {"chat_template": "older"}),
        ({TEMPLATE_FILE: TOOLS}, {"chat_template": NAMED}),
    ],
)
def test_the_template_is_that_of_transformers(
    tmp_path: Path, files: dict[str, str], config: dict[str, Any]
) -> None:
    make: Any = PreTrainedTokenizerFast
    make(tokenizer_object=tiny_tokenizer()).save_pretrained(tmp_path)
    saved = json.loads((tmp_path / ASSET_FILES[1]).read_text())
    folder = folder_of(tmp_path, files, **{**saved, "eos_token": "<|end|>", **config})
    reference: Any = AutoTokenizer.from_pretrained(folder)
    text = text_of(folder)
    for tools in ([], [TOOL]):
        expected = reference.apply_chat_template(
            [dict(message) for message in MESSAGES], tools=tools or None, tokenize=False
        )
        assert text.render(MESSAGES, tools) == expected
    assert text.shows_tools == (TOOLS in str(files) + str(config))


def test_the_digest_covers_the_template_files(tmp_path: Path) -> None:
    before = ModelAssets(folder_of(tmp_path, {})).digest
    first = ModelAssets(folder_of(tmp_path, {TEMPLATE_FILE: PLAIN})).digest
    other = ModelAssets(folder_of(tmp_path, {TEMPLATE_FILE: TOOLS})).digest
    both = ModelAssets(folder_of(tmp_path, {TOOL_TEMPLATE_FILE: TOOLS})).digest
    assert len({before, first, other, both}) == 4


def test_named_templates_without_a_default_do_not_chat(tmp_path: Path) -> None:
    text = text_of(folder_of(tmp_path, {}, chat_template=NAMED[1:]))
    assert not text.chats


@pytest.mark.parametrize(
    ("template", "state"),
    [
        (PLAIN, "renders, without tools"),
        (TOOLS, "renders, with tools in the form of Hermes"),
        ("{{ raise_exception('no system message') }}", "does not render a greeting: messages: no"),
        (TOOLS + "{{ tools[0].x.y }}", "does not render a greeting"),
    ],
)
def test_a_node_says_how_its_template_does(tmp_path: Path, template: str, state: str) -> None:
    assert ModelAssets(folder_of(tmp_path, {TEMPLATE_FILE: template})).template.startswith(state)


def test_a_node_without_a_template_says_so(tmp_path: Path) -> None:
    assert ModelAssets(folder_of(tmp_path, {}, chat_template=None)).template.startswith("none")


@pytest.mark.parametrize("template", ["{% if %}", "{{ x | nonsense }}", "{% include 'a' %}{{"])
def test_a_template_that_is_none_ends_the_start_of_its_node(tmp_path: Path, template: str) -> None:
    with pytest.raises(ModelError, match="chat_template: "):
        ModelAssets(folder_of(tmp_path, {TEMPLATE_FILE: template}))
