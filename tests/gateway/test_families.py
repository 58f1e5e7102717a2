"""Each family's form of calls: read in any pieces, and what a grammar of it takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer

from controlplane.gateway.ask import Ask, Turn
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.s3_tokenize.template import prompt_text
from controlplane.gateway.s6_finish.tools import CallFinder
from controlplane.gateway.toolform import WantedCalls, calls_grammar
from inference.contract.assets import ASSET_FILES
from inference.text import families
from inference.text.families import HARMONY, CallForm
from inference.text.model_text import ModelText
from tests.inference.text.tiny import SPECIAL, tiny_tokenizer
from tests.support.families import (
    BOOK,
    FAMILIES,
    NOW,
    PARAMETERS,
    ROME,
    Family,
    add_tokens,
    parts_of,
)

Cuts = st.lists(st.integers(0, 1000), max_size=12)
CLOSED = {**PARAMETERS, "additionalProperties": False}
EMPTY = {"type": "object", "properties": {}, "additionalProperties": False}
EOS = SPECIAL[1]


def read(form: CallForm, parts: list[str]) -> tuple[str, list[tuple[str, str]], int]:
    """Text, and names with arguments, of an answer that came in these parts."""
    finder = CallFinder("c", form, [BOOK, NOW])
    shown, calls = "", dict[int, list[str]]()
    for part in parts:
        text, deltas = finder.feed(part)
        shown += text
        for delta in deltas:
            calls.setdefault(delta.index, ["", ""])[0] += delta.name or ""
            calls[delta.index][1] += delta.arguments
    shown += finder.close(cut=False)
    return shown, [(name, arguments) for name, arguments in calls.values()], finder.complete


@pytest.mark.parametrize("name", FAMILIES)
@given(cuts=Cuts)
def test_calls_are_read_in_any_pieces(name: str, cuts: list[int]) -> None:
    family = FAMILIES[name]
    before = "" if family.form.bare or family.form is HARMONY else "I look < here [. "
    for answer, names in ((family.one, ["book"]), (family.two, ["book", "now"])):
        if not answer:
            continue
        shown, calls, complete = read(family.form, parts_of(before + answer, cuts))
        assert (shown, [called for called, _ in calls], complete) == (before, names, len(names))
        assert [json.loads(arguments) for _, arguments in calls] == [ROME, {}][: len(names)]


@pytest.mark.parametrize("name", FAMILIES)
@given(cuts=Cuts, end=st.integers(1, 30))
def test_what_is_no_call_is_text(name: str, cuts: list[int], end: int) -> None:
    form = FAMILIES[name].form
    tag = form.tags[0]
    for text in (f"{tag} and no more", tag[:end], f"See {tag * 2}", tag + "x" * 300, "{}", "{"):
        assert read(form, parts_of(text, cuts)) == (text, [], 0)


@pytest.mark.parametrize("name", FAMILIES)
@given(cuts=Cuts, text=st.text(st.sampled_from('<>/{}[]"|:;,. abk`\n｜')))
def test_any_text_is_read_alike_in_pieces(name: str, cuts: list[int], text: str) -> None:
    form = FAMILIES[name].form
    assert read(form, parts_of(text, cuts)) == read(form, [text])


@pytest.mark.parametrize(("effort", "told"), [("none", "low"), ("high", "high"), ("xhigh", "high")])
def test_gpt_oss_knows_three_efforts(effort: str, told: str) -> None:
    family = FAMILIES["gpt-oss"]
    text, _, _ = tokens_of(replace(family, template=family.template + "{{ reasoning_effort }}"))
    turns = (Turn("user", "Hi"),)
    ask = Ask(operation="chat", model="m", bytes=0, turns=turns, effort=effort)
    assert prompt_text(Call([]), ask, text).endswith(f"assistant{told}")


@pytest.fixture(scope="module")
def matching() -> Callable[..., bool]:
    made: dict[str, tuple[ModelText, Tokenizer, LLTokenizer]] = {}

    def matches(name: str, text: str, **changes: Any) -> bool:
        """Whether an answer may be this text and nothing more."""
        family = FAMILIES[name]
        if name not in made:
            made[name] = tokens_of(family)
        model, tokenizer, reader = made[name]
        wanted = {"functions": {"book": CLOSED, "now": EMPTY}, "must_call": False, "many": True}
        calls = WantedCalls(**{**wanted, **changes})
        source = calls_grammar(calls, family.form, model.names)
        matcher = LLMatcher(reader, LLMatcher.grammar_from_lark(source), log_level=0)
        assert not matcher.get_error(), (matcher.get_error(), source)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        return all(matcher.try_consume_tokens([id]) for id in ids) and matcher.is_accepting()

    return matches


def tokens_of(family: Family) -> tuple[ModelText, Tokenizer, LLTokenizer]:
    tokenizer = add_tokens(tiny_tokenizer(), family)
    config = {"chat_template": family.template, "eos_token": EOS}
    contents = (tokenizer.to_str().encode(), json.dumps(config).encode())
    text = ModelText.from_files(dict(zip(ASSET_FILES, contents, strict=True)))
    end = tokenizer.token_to_id(EOS)
    size = tokenizer.get_vocab_size()
    return text, tokenizer, LLTokenizer(tokenizer.to_str(), n_vocab=size, eos_token=end)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_forced_call_has_the_form(name: str, matching: Callable[..., bool]) -> None:
    family = FAMILIES[name]
    for changes in ({}, {"must_call": True}, {"many": False}, {"content": '"x"'}):
        assert matching(name, family.one, **changes), changes
    assert not matching(name, family.one.replace("book", "look"), must_call=True)
    assert not matching(name, family.one.replace("nights", "days"), must_call=True)
    assert not matching(name, "Hello there", must_call=True)
    said = family.form.said
    assert matching(name, said + "Hello < [ there\n")
    assert matching(name, said + "x", content='"x"') and not matching(name, "y", content='"x"')
    canonical = family.two.replace("[TOOL_CALLS] [", "[TOOL_CALLS][")
    for odd in (', "id": "abcdefghi"', "[CALL_ID]abcdefghi", "<|python_tag|>"):
        canonical = canonical.replace(odd, "")
    if family.form.between:
        assert matching(name, canonical) and not matching(name, canonical, many=False)


@pytest.mark.parametrize("name", ["qwen", "glm", "mistral", "mistral-named", "deepseek"])
def test_letters_of_a_tag_begin_a_call_too(name: str) -> None:
    """Where the tag is a token: else what is read as a call would not be held."""
    family = FAMILIES[name]
    model, tokenizer, reader = tokens_of(family)
    calls = WantedCalls({"book": CLOSED}, must_call=False, many=True)
    source = LLMatcher.grammar_from_lark(calls_grammar(calls, family.form, model.names))
    letters = [id for char in family.form.open for id in tokenizer.encode(char).ids]
    rest = tokenizer.encode(family.one.removeprefix(family.form.open)).ids
    for after, taken in ((rest, True), (tokenizer.encode(" is a word").ids, False)):
        matcher = LLMatcher(reader, source, log_level=0)
        ids = [*letters, *after]
        fits = all(matcher.try_consume_tokens([id]) for id in ids) and matcher.is_accepting()
        assert fits is taken


XML = ("qwen3-coder", "glm")


@pytest.mark.parametrize("name", XML)
@pytest.mark.parametrize(
    ("schema", "value", "taken"),
    [
        ({"type": "string"}, "any\ntext < here", True),
        ({"type": "string", "maxLength": 3}, "four", False),
        ({"type": "string", "minLength": 5}, "four", False),
        ({"type": "string", "pattern": "^[a-z]+$"}, "four", True),
        ({"type": "string", "pattern": "^[a-z]+$"}, "4", False),
        ({"type": "string", "pattern": "u/"}, "fou/r", True),
        ({"enum": ["one", "two"]}, "two", True),
        ({"enum": ["one", "two"]}, "three", False),
        ({"const": "one"}, "one", True),
        ({"type": "integer"}, "12", True),
        ({"type": "integer"}, "x", False),
        ({"type": ["string", "null"]}, "null", True),
        ({}, '{"a": [1]}', True),
        (True, '"x"', True),
    ],
)
def test_arguments_that_are_written_one_by_one(
    name: str, schema: Any, value: str, taken: bool, matching: Callable[..., bool]
) -> None:
    pairs = FAMILIES[name].form.pairs
    assert pairs is not None
    functions = {"book": {"type": "object", "properties": {"a": schema}, "required": ["a"]}}
    form = FAMILIES[name].form
    written = f"{pairs.key_open}a{pairs.key_close}{value}{pairs.value_close}"
    answer = f"{form.open}{form.head}book{form.middle}{written}{form.tail}"
    assert matching(name, answer, functions=functions, must_call=True) is taken


@pytest.mark.parametrize("name", XML)
def test_arguments_of_any_name(name: str, matching: Callable[..., bool]) -> None:
    functions = {"book": {"type": "object"}}
    assert matching(name, FAMILIES[name].one, functions=functions, must_call=True)
    nothing = FAMILIES[name].two.split("\n<tool_call>")[-1].replace("now", "book")
    assert matching(name, "<tool_call>" + nothing, functions=functions, must_call=True)


def test_a_schema_that_a_form_cannot_hold_is_refused() -> None:
    calls = WantedCalls({"f": {"type": "object", "anyOf": []}}, must_call=True, many=True)
    assert calls_grammar(calls)
    with pytest.raises(Refusal, match="'anyOf' of parameters cannot be held"):
        calls_grammar(calls, families.GLM)
    for wrong in ({"required": True}, {"properties": {"a": {"type": "string", "pattern": 5}}}):
        calls = WantedCalls({"f": {"type": "object", **wrong}}, must_call=True, many=True)
        with pytest.raises(Refusal, match="the parameters of 'f' are not a JSON schema"):
            calls_grammar(calls, families.GLM)
