"""The grammar of tool calls, as the engine's matcher reads it: what it takes and what not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from tokenizers import Tokenizer

from controlplane.gateway.toolform import WantedCalls, calls_grammar, json_rule
from inference.compact.grammar.compiler import GrammarCompiler
from inference.contract.grammar import JSON_WHITESPACE, Grammar
from tests.support.shipped import SHIPPED

TOKENIZER = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
EOS = 5
FIND: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"city": {"enum": ["Rome", "Oslo"]}},
}
WAIT: dict[str, Any] = {
    "type": "object",
    "properties": {"s": {"type": "integer"}},
    "required": ["s"],
    "additionalProperties": False,
}
FUNCTIONS: dict[str, Mapping[str, Any]] = {"find": FIND, "find_all": WAIT}


def call(name: str, **arguments: Any) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


@pytest.fixture
async def compiler() -> AsyncIterator[GrammarCompiler]:
    made = GrammarCompiler(SHIPPED / "tokenizer.json", vocab_size=4096, eos={EOS})
    yield made
    made.close()


async def whole(compiler: GrammarCompiler, text: str, **changes: Any) -> bool:
    """Whether an answer may be this text and nothing more."""
    wanted: dict[str, Any] = {"must_call": False, "many": True, **changes}
    source = calls_grammar(WantedCalls(FUNCTIONS, **wanted))
    mask = (await compiler.compile(Grammar(kind="lark", source=source), tenant=b""))()
    return all(mask.accept(token) for token in [*TOKENIZER.encode(text).ids, EOS])


ROME, FIVE = call("find", city="Rome"), call("find_all", s=5)


@pytest.mark.parametrize(
    ("text", "auto", "must", "one"),
    [
        ("Hello < there\n", True, False, True),
        (ROME, True, True, True),
        (FIVE, True, True, True),
        (f"I look. {ROME}", True, False, True),
        (f"{ROME}\n{FIVE}", True, True, False),
        (f"{ROME} and that is all", False, False, False),
        (call("find", city="Bern"), False, False, False),
        (call("find", s=5), False, False, False),
        (call("lose", city="Rome"), False, False, False),
        (ROME[:-3], False, False, False),
    ],
)
async def test_what_may_be_said(
    compiler: GrammarCompiler, text: str, auto: bool, must: bool, one: bool
) -> None:
    assert await whole(compiler, text) is auto
    assert await whole(compiler, text, must_call=True) is must
    assert await whole(compiler, text, many=False) is one


@pytest.mark.parametrize(
    ("text", "taken"), [("5", True), (ROME, True), ("Hello", False), (f"5{ROME}", False)]
)
async def test_a_call_or_what_the_answer_has_to_match(
    compiler: GrammarCompiler, text: str, taken: bool
) -> None:
    content = json_rule({"type": "integer"}, JSON_WHITESPACE)
    assert await whole(compiler, text, content=content) is taken
