"""How tokens are drawn: what is declared has its effect, a seed repeats, a grammar holds."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tokenizers import Tokenizer

from inference.contract.capabilities import Capability
from inference.contract.grammar import Grammar
from tests.inference.conformance.served import Served, tokens_of
from tests.inference.conformance.subjects import declaring
from tests.support.shipped import SHIPPED

SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer", "maximum": 9, "minimum": 0}},
    "required": ["count"],
    "additionalProperties": False,
}


@declaring(Capability.TEMPERATURE, Capability.TOP_K, Capability.TOP_P, Capability.MIN_P)
@pytest.mark.parametrize(
    "narrow", [{"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}], ids=["top_k", "top_p", "min_p"]
)
async def test_narrow_enough_every_draw_is_greedy(served: Served, narrow: dict[str, Any]) -> None:
    greedy = tokens_of(await served.run(served.job(40, max_tokens=12)))
    drawn = await served.run(served.job(40, max_tokens=12, temperature=2.0, seed=1, **narrow))
    assert tokens_of(drawn) == greedy
    wide = await served.run(served.job(40, max_tokens=12, temperature=2.0, seed=1))
    assert tokens_of(wide) != greedy


@declaring(Capability.FREQUENCY_PENALTY, Capability.PRESENCE_PENALTY)
@pytest.mark.parametrize("penalty", ["frequency_penalty", "presence_penalty"])
async def test_penalties_spread_the_words(served: Served, penalty: str) -> None:
    plain = tokens_of(await served.run(served.job(40, max_tokens=48)))
    spread = tokens_of(await served.run(served.job(40, max_tokens=48, **{penalty: 2.0})))
    assert len(set(spread)) > len(set(plain))


@declaring(Capability.SEED)
async def test_a_seed_repeats_in_any_company(served: Served) -> None:
    wanted: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9, "max_tokens": 12}
    alone = tokens_of(await served.run(served.job(100, seed=42, **wanted)))
    others = [served.job(30 + number, temperature=1.0, max_tokens=20) for number in range(3)]
    served.submit(*others)
    again = tokens_of(await served.run(served.job(100, seed=42, **wanted)))
    assert again == alone
    assert tokens_of(await served.run(served.job(100, seed=43, **wanted))) != alone


@declaring(Capability.GRAMMAR)
@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        (Grammar(kind="regex", source="[0-9]{3}"), r"[0-9]{3}"),
        (Grammar(kind="lark", source='start: "yes" | "no"'), r"yes|no"),
        (Grammar(kind="json_schema", source=json.dumps(SCHEMA)), r'\{\s*"count"\s*:\s*\d\s*\}'),
    ],
    ids=lambda value: value.kind if isinstance(value, Grammar) else "",
)
async def test_a_grammar_holds(served: Served, grammar: Grammar, pattern: str) -> None:
    job = served.job(40, max_tokens=120, temperature=1.0, seed=5, grammar=grammar, ignore_eos=False)
    outputs = await served.run(job)
    text = Tokenizer.from_file(str(SHIPPED / "tokenizer.json")).decode(tokens_of(outputs))
    assert outputs[-1].finish == "stop"
    assert re.fullmatch(pattern, text.strip())


@declaring(Capability.GRAMMAR)
async def test_a_grammar_that_cannot_be_compiled_is_refused(served: Served) -> None:
    job = served.job(40, grammar=Grammar(kind="regex", source="([0-9]"), ignore_eos=False)
    served.submit(job)
    await served.sink.until(lambda: job.request in served.sink.refused)
    assert served.sink.refused[job.request].code == "bad_grammar"
    # The engine goes on.
    await served.run(served.job(20))
