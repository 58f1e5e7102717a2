"""Masks of grammars: what they allow, how they end, how they are taken back, what is refused."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from inference.compact.grammar import compiler as grammars
from inference.compact.grammar.compiler import CompiledGrammar, GrammarCompiler, GrammarMask
from inference.contract.grammar import Grammar
from inference.errors import JobRefused

SHIPPED = Path(__file__).parents[4] / "inference" / "assets" / "sluice-5m"
TOKENIZER = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
EOS = 5
TENANT, OTHER = b"salt of a tenant", b"salt of another"
# Wider than the vocabulary, as padded embeddings are, and no multiple of a word.
VOCABULARY = 4101


@pytest.fixture
async def compiler() -> AsyncIterator[GrammarCompiler]:
    made = GrammarCompiler(SHIPPED / "tokenizer.json", vocab_size=VOCABULARY, eos={EOS})
    yield made
    made.close()


def regex(source: str) -> Grammar:
    return Grammar(kind="regex", source=source)


def schema(**keywords: Any) -> Grammar:
    return Grammar(kind="json_schema", source=json.dumps(keywords))


def allowed(mask: GrammarMask) -> set[int]:
    row = bytearray(b"\xff" * (-(-VOCABULARY // 32) * 4))
    mask.fill(memoryview(row))
    bits = np.unpackbits(np.frombuffer(row, np.uint8), bitorder="little")
    return {int(token) for token in np.flatnonzero(bits)}


def takes(mask: GrammarMask, text: str) -> bool:
    return all(mask.accept(token) for token in TOKENIZER.encode(text).ids)


async def test_masks_made_in_one_call_are_those_made_one_by_one(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of different grammars, one of them ended; and one that is slow is measured by itself."""
    sources = ["[0-9]{2,9}", "(ab|cd)+", "x*", "[a-z]+"]
    made = [await compiler.compile(regex(source), tenant=TENANT) for source in sources]
    masks, again = ([one() for one in made] for _ in range(2))
    for each in (masks[2], again[2]):
        assert each.accept(EOS)
    bits = np.full((5, -(-VOCABULARY // 32) * 4), 0xFF, np.uint8)
    pairs = list(zip(masks, (3, 0, 1, 4), strict=True))
    GrammarMask.fill_all(pairs, bits)
    for (_, row), other in zip(pairs, again, strict=True):
        found = np.unpackbits(bits[row], bitorder="little")
        assert set(np.flatnonzero(found)) == allowed(other)
    assert (bits[2] == 0xFF).all(), "a row of nobody"
    monkeypatch.setattr(grammars, "MASK_CPU_S", -1.0)
    GrammarMask.fill_all(pairs, bits)
    left = [mask._left_s for mask, _ in pairs]
    assert left[2] == grammars.CHOICE_CPU_S, "it has ended, and costs nothing"
    assert all(each < grammars.CHOICE_CPU_S for each in (left[0], left[1], left[3]))


@pytest.mark.parametrize(
    ("grammar", "whole", "part"),
    [
        (Grammar(kind="json_object"), '{"a": [1, null]}', '{"a"'),
        (schema(type="object", properties={"a": {"type": "integer"}}), '{"a": 12}', '{"a": 1'),
        (regex("[0-9]{3}"), "123", "12"),
        (Grammar(kind="lark", source='start: "yes" | "no"'), "yes", "ye"),
    ],
)
async def test_the_end_token_is_allowed_where_the_text_is_whole(
    compiler: GrammarCompiler, grammar: Grammar, whole: str, part: str
) -> None:
    compiled = await compiler.compile(grammar, tenant=TENANT)
    unfinished, finished = compiled(), compiled()
    assert takes(unfinished, part) and EOS not in allowed(unfinished)
    assert not unfinished.accept(EOS)
    assert takes(finished, whole) and EOS in allowed(finished)
    assert finished.accept(EOS) and allowed(finished) == set()


async def test_what_does_not_match_is_not_accepted_and_changes_nothing(
    compiler: GrammarCompiler,
) -> None:
    mask = (await compiler.compile(regex("ab*"), tenant=TENANT))()
    before = allowed(mask)
    assert not takes(mask, "c") and allowed(mask) == before
    assert takes(mask, "abbb")


async def test_padding_and_special_tokens_are_never_allowed(compiler: GrammarCompiler) -> None:
    mask = (await compiler.compile(regex(r"(.|\n)*"), tenant=TENANT))()
    assert allowed(mask) & {*range(5), *range(4096, VOCABULARY)} == set()
    assert len(allowed(mask)) > 4000


@pytest.mark.parametrize("text", ["12", "123"])
async def test_rollback_takes_back_tokens_and_the_end(compiler: GrammarCompiler, text: str) -> None:
    mask = (await compiler.compile(regex("[0-9]{1,3}"), tenant=TENANT))()
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
    compiled = await compiler.compile(regex("ax|by"), tenant=TENANT)
    one, other = compiled(), compiled()
    assert takes(one, "a") and takes(other, "b")
    assert takes(one, "x") and takes(other, "y")


async def test_blanks_come_to_an_end(compiler: GrammarCompiler) -> None:
    mask = (await compiler.compile(schema(type="object", properties={}), tenant=TENANT))()
    assert takes(mask, "{")
    blank = TOKENIZER.encode("\n").ids[0]
    assert sum(mask.accept(blank) for _ in range(100)) == 8


REFUSED: dict[str, tuple[Grammar, str]] = {
    "unknown type": (schema(type="strng"), "strng"),
    "unsupported keyword": (schema(type="array", uniqueItems=True), "uniqueItems"),
    "unknown format": (schema(type="string", format="colour"), "colour"),
    "remote reference": (schema(**{"$ref": "http://elsewhere/x"}), "elsewhere"),
    "unsatisfiable": (schema(enum=[]), "nsatisfiable"),
    "no JSON": (Grammar(kind="json_schema", source="{"), "EOF"),
    "endless reference": (schema(**{"$ref": "#"}), "no text can match it"),
    "look-around": (regex("(?=a)b"), "look-around"),
    "open bracket": (regex("(a"), ""),
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
    compiler: GrammarCompiler, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Refused for what it is, on a busy machine too.
    monkeypatch.setattr(grammars, "COMPILE_S_MAX", 120.0)
    grammar, reason = REFUSED[name]
    for _ in range(2):
        with pytest.raises(JobRefused) as caught:
            await compiler.compile(grammar, tenant=TENANT)
        assert caught.value.code == "bad_grammar"
        assert str(caught.value) and reason in str(caught.value)
        assert "\n" not in str(caught.value)


async def test_a_limit_reached_on_the_way_allows_nothing(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine then ends the choice with an error; an end token would make it look whole."""
    monkeypatch.setattr(grammars, "TRIAL_STEPS", 0)
    grammar, _ = REFUSED["doubling rules"]
    mask = (await compiler.compile(grammar, tenant=TENANT))()
    assert allowed(mask)
    takes(mask, "x")
    assert allowed(mask) == set()


async def test_a_grammar_that_takes_long_at_each_step_is_not_followed_to_the_end(
    compiler: GrammarCompiler,
) -> None:
    source = 'start: a+\na: "x" | a a | a a a | ""\n'
    mask = (await compiler.compile(Grammar(kind="lark", source=source), tenant=TENANT))()
    (x,) = TOKENIZER.encode("x").ids
    steps = 0
    while allowed(mask):
        assert mask.accept(x)
        steps += 1
        assert steps < 2_000, "it would go on for ever"
    assert not allowed(mask), "nor later"


async def test_usual_grammars_keep_all_the_time_they_have(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading of this clock is 0.5 ms later, so a mask and its token take half of a budget."""
    readings = itertools.count()
    monkeypatch.setattr(grammars, "thread_time", lambda: next(readings) * 0.0005)
    mask = (await compiler.compile(regex("x*"), tenant=TENANT))()
    (x,) = TOKENIZER.encode("x").ids
    for _ in range(2_000):
        assert allowed(mask) and mask.accept(x)


class Held:
    """The thread as it compiles: what it was given, in order; each waits until it is let go."""

    def __init__(self, compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[str] = []
        self.go = threading.Semaphore(0)
        build = compiler._queue._build

        def held(grammar: Grammar) -> CompiledGrammar | str:
            self.given.append(grammar.source)
            assert self.go.acquire(timeout=60.0)
            return build(grammar)

        monkeypatch.setattr(compiler._queue, "_build", held)

    def let_go(self) -> None:
        """All that are given and will be."""
        self.go.release(1_000)


@pytest.fixture
def held(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held(compiler, monkeypatch)
    yield made
    made.let_go()


def asked(
    compiler: GrammarCompiler, *sources: str, tenant: bytes = TENANT
) -> list[asyncio.Task[CompiledGrammar]]:
    return [asyncio.create_task(compiler.compile(regex(each), tenant=tenant)) for each in sources]


async def test_compiled_once_and_the_cache_is_bounded(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars, "CACHE_MAX", 2)
    one, same, others = await asyncio.gather(
        *asked(compiler, "a", "a"), *asked(compiler, "a", tenant=OTHER)
    )
    assert one is same and one is others
    for source in "baca":
        (again,) = await asyncio.gather(*asked(compiler, source))
        assert (again is one) == (source == "a")
    assert list(compiler._queue._kept) == [regex("c"), regex("a")]


async def test_tenants_take_turns_however_many_grammars_one_brings(
    compiler: GrammarCompiler, held: Held
) -> None:
    many = asked(compiler, *(f"a{{{number}}}" for number in range(1, 9)))
    await asyncio.sleep(0)
    late = asked(compiler, "b", "c", tenant=OTHER) + asked(compiler, "d", tenant=b"")
    await asyncio.sleep(0)
    held.let_go()
    assert all(await asyncio.gather(*many, *late))
    assert held.given[:6] == ["a{1}", "b", "d", "a{2}", "c", "a{3}"]
    assert not compiler._queue._waiting


async def test_the_queue_is_bounded_for_each_tenant_and_in_all(
    compiler: GrammarCompiler, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars, "TENANT_QUEUE_MAX", 2)
    monkeypatch.setattr(grammars, "QUEUE_MAX", 3)
    tasks = asked(compiler, "a", "b", "c", "b")
    tasks += asked(compiler, "a", "b", tenant=OTHER)
    await asyncio.sleep(0)
    held.let_go()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    told = [str(error) if isinstance(error, JobRefused) else "" for error in errors]
    one, every = "2 grammars of this tenant wait", "3 grammars of all tenants wait"
    assert [one in told[2], every in told[5]] == [True, True]
    assert told[:2] + told[3:5] == [""] * 4
    assert all(await asyncio.gather(*asked(compiler, "c")))


async def test_what_nobody_waits_for_any_more_is_not_compiled_and_leaves_room(
    compiler: GrammarCompiler, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars, "TENANT_QUEUE_MAX", 3)
    first, gone, shared, same = asked(compiler, "a", "b", "c", "c")
    (alone,) = asked(compiler, "d", tenant=OTHER)
    await asyncio.sleep(0)
    for each in (first, gone, shared, alone):
        each.cancel()
    await asyncio.wait([first, gone, shared, alone])
    # The first is in the thread already: whoever asks for it again gets the same.
    again, late = asked(compiler, "a", "e")
    await asyncio.sleep(0)
    held.let_go()
    assert all(await asyncio.gather(same, again, late))
    assert held.given == ["a", "c", "e"]
    assert not compiler._queue._waiting


async def test_a_grammar_held_up_by_others_is_not_to_blame(
    compiler: GrammarCompiler, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammars, "COMPILE_S_MAX", 0.01)
    errors = await asyncio.gather(*asked(compiler, "a", "b"), return_exceptions=True)
    codes = [error.code for error in errors if isinstance(error, JobRefused)]
    assert codes == ["bad_grammar", "full"]


async def test_whoever_waits_when_it_closes_is_let_go(
    compiler: GrammarCompiler, held: Held
) -> None:
    tasks = asked(compiler, "a", "b")
    await asyncio.sleep(0)
    compiler.close()
    held.let_go()
    _, left = await asyncio.wait(tasks, timeout=60.0)
    assert not left and all(task.cancelled() for task in tasks)


async def test_a_tokenizer_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="tokenizer"):
        GrammarCompiler(tmp_path / "tokenizer.json", vocab_size=10, eos={1})
