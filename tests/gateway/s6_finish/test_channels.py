"""OpenAI's harmony format: thoughts and calls are in channels, which are token ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer

from controlplane.gateway.openai.structured import after_thoughts
from controlplane.gateway.s6_finish.finisher import Finisher
from controlplane.gateway.toolform import WantedCalls, calls_grammar
from inference.contract.grammar import Grammar
from inference.text.decode import ChannelMarks
from inference.text.model_text import ModelText
from tests.gateway.s6_finish.test_finisher import EMAIL
from tests.gateway.s6_finish.test_thoughts import all_of, make_finisher, outputs_of
from tests.support.families import ARGUMENTS, BOOK, FAMILIES, NOW, PARAMETERS, add_tokens
from tests.support.fleet import make_model
from tests.support.thinking import text_of

FAMILY = FAMILIES["gpt-oss"]
THOUGHT = "<|channel|>analysis<|message|>It is 東京.<|end|><|start|>assistant"
MORE = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>Two, ünd."


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    return harmony(tmp_path_factory.mktemp("harmony"))


def harmony(folder: Path) -> ModelText:
    path = make_model(folder)
    tokenizer = add_tokens(Tokenizer.from_file(str(path / "tokenizer.json")), FAMILY)
    tokenizer.add_special_tokens(["<|end|>", "<|return|>"])
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": FAMILY.template}))
    return text_of(path)


def said(
    text: ModelText, answer: str, sizes: list[int], *, tools: bool = False
) -> tuple[str, str, list[tuple[str, str]], Finisher]:
    """Thoughts, answer and calls; no part of it waits for anybody."""
    tokens = text.encode(answer, add_special=False)
    finisher = make_finisher(text, tools=(BOOK, NOW) if tools else ())
    coming = all_of(finisher, outputs_of(tokens, sizes))
    with pytest.raises(StopIteration) as done:
        coming.send(None)
    piece = done.value.value
    names = [call.name for call in piece.calls if call.name]
    calls = [(name, "".join(call.arguments for call in piece.calls)) for name in names]
    return piece.reasoning, piece.text, calls, finisher


Sizes = st.lists(st.integers(1, 20), max_size=12)


@given(sizes=Sizes, tools=st.booleans())
def test_thoughts_and_the_final_message(text: ModelText, sizes: list[int], tools: bool) -> None:
    thought, answer, calls, finisher = said(text, THOUGHT + MORE + FINAL, sizes, tools=tools)
    assert (thought, answer, calls) == ("It is 東京.\n\nI look.", "Two, ünd.", [])
    assert finisher.finish_reason == "stop" and finisher.reasoning_tokens > 30
    assert said(text, FINAL, sizes, tools=tools)[:3] == ("", "Two, ünd.", [])


@given(sizes=Sizes)
def test_a_call_in_either_spelling(text: ModelText, sizes: list[int]) -> None:
    other = f" to=functions.book<|channel|>commentary json<|message|>{ARGUMENTS}"
    for call in (FAMILY.one, other):
        thought, answer, calls, finisher = said(text, THOUGHT + call, sizes, tools=True)
        assert (thought, answer, calls) == ("It is 東京.", "", [("book", ARGUMENTS)])
        assert finisher.finish_reason == "tool_calls"
    thought, answer, calls, _ = said(text, THOUGHT + FAMILY.one, sizes)
    assert calls == [] and answer.endswith(ARGUMENTS), "nothing is lost that nobody asked for"


@given(sizes=Sizes)
def test_an_answer_without_channels_is_not_lost(text: ModelText, sizes: list[int]) -> None:
    for answer in ("Just words.", "x" * 400):
        assert said(text, answer, sizes)[:3] == ("", answer, [])
    assert said(text, THOUGHT.removesuffix("<|end|><|start|>assistant"), sizes)[0] == "It is 東京."


async def test_the_safety_layer_reads_an_answer_without_channels(text: ModelText) -> None:
    tokens = text.encode(f"Write to {EMAIL} .", add_special=False)
    finisher = make_finisher(text, mode="block")
    piece = await all_of(finisher, outputs_of(tokens, [5]))
    assert piece.finish == "content_filter" and EMAIL not in piece.text


@pytest.mark.parametrize("calls", [True, False])
def test_a_grammar_holds_what_comes_after_the_thoughts(text: ModelText, calls: bool) -> None:
    marks = text.marks
    assert isinstance(marks, ChannelMarks) and marks.opened([]) is None
    grammar = Grammar(kind="regex", source="Two.*")
    if calls:
        functions: dict[str, Mapping[str, Any]] = {
            "book": {**PARAMETERS, "additionalProperties": False}
        }
        wanted = WantedCalls(functions, must_call=True, many=True)
        source = calls_grammar(wanted, FAMILY.form, text.names)
        grammar = Grammar(kind="lark", source=source)
    held = after_thoughts(grammar, "f", marks, opened=False, calls=calls).grammar
    tokenizer = text._tokenizer
    reader = LLTokenizer(tokenizer.to_str(), n_vocab=text.vocab_size, eos_token=text.vocab_size - 1)
    for answer, taken in ((FINAL, not calls), (FAMILY.one, calls), ("Two", False)):
        for before in ("", THOUGHT, THOUGHT * 2):
            matcher = LLMatcher(reader, LLMatcher.grammar_from_lark(held.source), log_level=0)
            assert not matcher.get_error()
            ids = text.encode(before + answer, add_special=False)
            fits = all(matcher.try_consume_tokens([id]) for id in ids) and matcher.is_accepting()
            assert fits is taken
