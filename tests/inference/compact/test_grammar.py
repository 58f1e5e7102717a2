"""Masks of grammars: what they allow, how they end, how they are taken back, what is refused."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from inference.compact import grammar as grammars
from inference.compact.grammar import GrammarCompiler, GrammarMask
from inference.contract.frames import Grammar
from inference.engines.base import JobRefused

SHIPPED = Path(__file__).parents[3] / "inference" / "assets" / "sluice-5m"
TOKENIZER = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
EOS = 5
# Wider than the vocabulary, as padded embeddings are, and no multiple of a word.
VOCABULARY = 4101


@pytest.fixture
async def compiler() -> AsyncIterator[GrammarCompiler]:
    made = GrammarCompiler(SHIPPED / "tokenizer.json", vocab_size=VOCABULARY, eos={EOS})
    yield made
    made.close()


def schema(**keywords: Any) -> Grammar:
    return Grammar(kind="json_schema", source=json.dumps(keywords))


def allowed(mask: GrammarMask) -> set[int]:
    row = bytearray(b"\xff" * (-(-VOCABULARY // 32) * 4))
    mask.fill(row)
    bits = np.unpackbits(np.frombuffer(row, np.uint8), bitorder="little")
    return {int(token) for token in np.flatnonzero(bits)}


def takes(mask: GrammarMask, text: str) -> bool:
    return all(mask.accept(token) for token in TOKENIZER.encode(text).ids)


@pytest.mark.parametrize(
    ("grammar", "whole", "part"),
    [
        (Grammar(kind="json_object"), '{"a": [1, null]}', '{"a"'),
        (schema(type="object", properties={"a": {"type": "integer"}}), '{"a": 12}', '{"a": 1'),
        (Grammar(kind="regex", source="[0-9]{3}"), "123", "12"),
        (Grammar(kind="lark", source='start: "yes" | "no"'), "yes", "ye"),
    ],
)
async def test_the_end_token_is_allowed_where_the_text_is_whole(
    compiler: GrammarCompiler, grammar: Grammar, whole: str, part: str
) -> None:
    compiled = await compiler.compile(grammar)
    unfinished, finished = compiled.mask(), compiled.mask()
    assert takes(unfinished, part) and EOS not in allowed(unfinished)
    assert not unfinished.accept(EOS)
    assert takes(finished, whole) and EOS in allowed(finished)
    assert finished.accept(EOS) and allowed(finished) == set()


async def test_what_does_not_match_is_not_accepted_and_changes_nothing(
    compiler: GrammarCompiler,
) -> None:
    mask = (await compiler.compile(Grammar(kind="regex", source="ab*"))).mask()
    before = allowed(mask)
    assert not takes(mask, "c") and allowed(mask) == before
    assert takes(mask, "abbb")


async def test_padding_and_special_tokens_are_never_allowed(compiler: GrammarCompiler) -> None:
    mask = (await compiler.compile(Grammar(kind="regex", source=r"(.|\n)*"))).mask()
    assert allowed(mask) & {*range(5), *range(4096, VOCABULARY)} == set()
    assert len(allowed(mask)) > 4000


@pytest.mark.parametrize("text", ["12", "123"])
async def test_rollback_takes_back_tokens_and_the_end(compiler: GrammarCompiler, text: str) -> None:
    mask = (await compiler.compile(Grammar(kind="regex", source="[0-9]{1,3}"))).mask()
    takes(mask, "1")
    before = allowed(mask)
    tokens = TOKENIZER.encode(text[1:]).ids
    assert all(mask.accept(token) for token in tokens) and mask.accept(EOS)
    mask.rollback(len(tokens) + 1)
    assert allowed(mask) == before
    mask.rollback(0)
    with pytest.raises(ValueError, match="rollback"):
        mask.rollback(5)


async def test_choices_of_one_grammar_go_their_own_ways(compiler: GrammarCompiler) -> None:
    compiled = await compiler.compile(Grammar(kind="regex", source="ax|by"))
    one, other = compiled.mask(), compiled.mask()
    assert takes(one, "a") and takes(other, "b")
    assert takes(one, "x") and takes(other, "y")


async def test_blanks_come_to_an_end(compiler: GrammarCompiler) -> None:
    mask = (await compiler.compile(schema(type="object", properties={}))).mask()
    assert takes(mask, "{")
    blank = TOKENIZER.encode("\n").ids[0]
    assert sum(mask.accept(blank) for _ in range(100)) == 24


REFUSED: dict[str, tuple[Grammar, str]] = {
    "unknown type": (schema(type="strng"), "strng"),
    "unsupported keyword": (schema(type="array", uniqueItems=True), "uniqueItems"),
    "unknown format": (schema(type="string", format="colour"), "colour"),
    "remote reference": (schema(**{"$ref": "http://elsewhere/x"}), "elsewhere"),
    "unsatisfiable": (schema(enum=[]), "nsatisfiable"),
    "no JSON": (Grammar(kind="json_schema", source="{"), "EOF"),
    "endless reference": (schema(**{"$ref": "#"}), "no text can match it"),
    "look-around": (Grammar(kind="regex", source="(?=a)b"), "look-around"),
    "open bracket": (Grammar(kind="regex", source="(a"), ""),
    "no grammar": (Grammar(kind="lark", source="start: ("), "Expected"),
    "product of alternatives": (
        schema(
            allOf=[
                {"anyOf": [{"properties": {f"p{i}_{j}": {}}} for j in range(6)]} for i in range(8)
            ]
        ),
        "too large",
    ),
    "doubling terminals": (
        Grammar(
            kind="lark",
            source="start: A0\n"
            + "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(60))
            + '\nA60: "x"',
        ),
        "too big",
    ),
    "doubling rules": (
        Grammar(
            kind="lark",
            source="start: a0\n"
            + "\n".join(f"a{i}: a{i + 1} a{i + 1}" for i in range(60))
            + '\na60: "x"',
        ),
        "Too many items",
    ),
    "thousands of optional fields": (
        schema(type="object", properties={f"field_{i}": {} for i in range(1500)}),
        "items",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_bad_grammars_and_bombs_are_refused_with_a_reason(
    compiler: GrammarCompiler, name: str
) -> None:
    grammar, reason = REFUSED[name]
    for _ in range(2):
        with pytest.raises(JobRefused) as caught:
            await compiler.compile(grammar)
        assert caught.value.code == "bad_grammar"
        assert str(caught.value) and reason in str(caught.value)
        assert "\n" not in str(caught.value)


async def test_a_limit_reached_on_the_way_allows_nothing(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine then ends the choice with an error; an end token would make it look whole."""
    monkeypatch.setattr(grammars, "TRIAL_STEPS", 0)
    grammar, _ = REFUSED["doubling rules"]
    mask = (await compiler.compile(grammar)).mask()
    assert allowed(mask)
    takes(mask, "x")
    assert allowed(mask) == set()


async def test_compiled_once_and_the_cache_is_bounded(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars, "CACHE_MAX", 2)
    first, second, third = (Grammar(kind="regex", source=text) for text in "abc")
    one, same = await asyncio.gather(compiler.compile(first), compiler.compile(first))
    assert one is same
    await compiler.compile(second)
    assert await compiler.compile(first) is one
    await compiler.compile(third)
    assert await compiler.compile(first) is one
    assert len(compiler._cache) == 2 and second not in compiler._cache


async def test_the_queue_is_bounded(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars, "QUEUE_MAX", 2)
    asked = [
        asyncio.create_task(compiler.compile(Grammar(kind="regex", source=f"a{{{number}}}")))
        for number in range(1, 4)
    ]
    await asyncio.wait(asked)
    errors = [task.exception() for task in asked]
    assert [isinstance(error, JobRefused) and error.code for error in errors if error] == ["full"]
    await compiler.compile(Grammar(kind="regex", source="a{3}"))


async def test_a_grammar_held_up_by_others_is_not_to_blame(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars, "COMPILE_S_MAX", 0.01)
    others_done = threading.Event()
    compiler._threads.submit(others_done.wait)
    try:
        with pytest.raises(JobRefused) as caught:
            await compiler.compile(Grammar(kind="regex", source="a"))
    finally:
        others_done.set()
    assert caught.value.code == "full"


async def test_a_tokenizer_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="tokenizer"):
        GrammarCompiler(tmp_path / "tokenizer.json", vocab_size=10, eos={1})
