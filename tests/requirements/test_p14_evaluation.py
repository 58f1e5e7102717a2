"""P14: public tools that evaluate and load a model work unchanged, through a gateway and the real
engine. What `lm-eval`, `guidellm` and `vllm bench serve` send is sent here as they send it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from tokenizers import Tokenizer

from tests.support.oracle import oracle_scores
from tests.support.serving import Serving
from tests.support.shipped import END_TOKEN, SHIPPED, long_prompt, no_end
from tests.support.shipped_node import shipped_node
from tests.support.waiting import until

TOLERANCE = 2e-3
TIMEOUT_S = 100.0
TEXT = "The hotel has a room for two nights."


@pytest.fixture
async def serving(bare: Serving) -> AsyncIterator[Serving]:
    """A gateway with one node that runs the shipped model; nothing may stay open."""
    async with shipped_node(bare.under_test):
        bare.client.timeout = httpx2.Timeout(TIMEOUT_S)
        yield bare


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))


async def completed(serving: Serving, **fields: Any) -> dict[str, Any]:
    answer = await serving.complete(**fields)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def events(answer: httpx2.Response) -> list[dict[str, Any]]:
    parts = answer.text.split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]


def log_likelihood(choice: dict[str, Any], context: int) -> tuple[float, bool]:
    """As `lm-eval` reads a choice: of what follows the context, without the generated token."""
    logprobs = choice["logprobs"]
    own = logprobs["token_logprobs"][context:-1]
    tops = logprobs["top_logprobs"][context:-1]
    greedy = all(each == max(top.values()) for each, top in zip(own, tops, strict=True))
    return sum(own), greedy


async def test_log_likelihoods_are_those_of_the_model(serving: Serving) -> None:
    prompts = [long_prompt(30 + 11 * place)[place:] for place in range(5)]
    answer = await completed(
        serving, prompt=prompts, echo=True, logprobs=1, max_tokens=1, temperature=0, seed=1234
    )
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3, 4]
    for choice, prompt in zip(answer["choices"], prompts, strict=True):
        table, context = oracle_scores(prompt), len(prompt) - 6
        wanted = [row[token] for row, token in zip(table, prompt[1:], strict=True)]
        found, greedy = log_likelihood(choice, context)
        assert len(choice["logprobs"]["tokens"]) == len(prompt) + 1
        assert found == pytest.approx(sum(wanted[context - 1 :]), abs=6 * TOLERANCE)
        best = [max(row) == row[token] for row, token in zip(table, prompt[1:], strict=True)]
        assert greedy == all(best[context - 1 :])
    assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))
    assert answer["usage"]["completion_tokens"] == 5


async def test_an_end_token_does_not_shift_what_is_read(
    serving: Serving, tokenizer: Tokenizer
) -> None:
    end = str(tokenizer.token_to_id(END_TOKEN))
    prompt = long_prompt(12)
    fields = {"prompt": [prompt], "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    answer = await completed(serving, logit_bias={end: 100}, **fields)
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"]["tokens"][-1] == END_TOKEN
    assert len(choice["logprobs"]["token_logprobs"]) == len(prompt) + 1


@pytest.mark.parametrize("stream", [False, True])
async def test_echo_of_a_text(serving: Serving, tokenizer: Tokenizer, stream: bool) -> None:
    fields: dict[str, Any] = {"prompt": TEXT, "temperature": 0, "logprobs": 2, "max_tokens": 5}
    fields["logit_bias"] = no_end()
    plain = await completed(serving, **fields)
    answer = await serving.complete(**fields, echo=True, n=2, stream=stream)
    parts = events(answer) if stream else [answer.json()]
    ids = tokenizer.encode(TEXT).ids
    table = oracle_scores(ids)
    for index in range(2):
        mine = [part for each in parts for part in each["choices"] if part["index"] == index]
        assert "".join(part["text"] for part in mine) == TEXT + plain["choices"][0]["text"]
        told = [part["logprobs"] for part in mine if part["logprobs"]]
        tokens, own, tops, offsets = (
            [each for part in told for each in part[field]]
            for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        )
        assert (own[0], tops[0]) == (None, None)
        wanted = [row[token] for row, token in zip(table, ids[1:], strict=True)]
        assert own[1 : len(ids)] == pytest.approx(wanted, abs=TOLERANCE)
        assert [len(top) for top in tops[1:]] == [2] * (len(ids) + 4)
        text = TEXT + plain["choices"][0]["text"]
        for token, offset in list(zip(tokens, offsets, strict=True))[1:]:
            assert text[offset : offset + len(token)] == token


async def test_a_prompt_is_scored_and_nothing_generated(serving: Serving) -> None:
    prompt = long_prompt(40)
    answer = await completed(serving, prompt=prompt, echo=True, logprobs=0, max_tokens=0)
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert len(choice["logprobs"]["token_logprobs"]) == 40
    assert answer["usage"]["completion_tokens"] == 0
    bare = await completed(serving, prompt=TEXT, echo=True, max_tokens=0)
    assert (bare["choices"][0]["text"], bare["choices"][0]["logprobs"]) == (TEXT, None)
    await until(lambda: len(serving.under_test.ledger.settled) == 2)


async def test_prompts_in_a_list_are_answered_as_each_alone(serving: Serving) -> None:
    prompts = [TEXT, "Once upon a time", "What is the"]
    fields = {"temperature": 0, "max_tokens": 12}
    alone = [await completed(serving, prompt=each, **fields) for each in prompts]
    answer = await completed(serving, prompt=prompts, n=2, **fields)
    found = [choice["text"] for choice in answer["choices"]]
    assert found == [each["choices"][0]["text"] for each in alone for _ in range(2)]
    assert answer["usage"]["prompt_tokens"] == sum(e["usage"]["prompt_tokens"] for e in alone)
    chunks = events(
        await serving.complete(
            prompt=prompts, n=2, stream=True, stream_options={"include_usage": True}, **fields
        )
    )
    for index, text in enumerate(found):
        mine = [p for chunk in chunks for p in chunk["choices"] if p["index"] == index]
        assert "".join(part["text"] for part in mine) == text
        assert mine[-1]["finish_reason"] is not None
    assert chunks[-1]["usage"]["completion_tokens"] == answer["usage"]["completion_tokens"]


@pytest.mark.parametrize("tokens", [1, 37, 300])
async def test_exactly_as_many_tokens_as_asked(serving: Serving, tokens: int) -> None:
    """As `vllm bench serve` and `guidellm` ask, in both operations."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    fields = {
        "max_tokens": tokens, "ignore_eos": True, "stream": True, "stream_options": options,
        "temperature": 0.0, "repetition_penalty": 1.0,
    }  # fmt: skip
    for answer in (await serving.complete(**fields), await serving.chat(**fields)):
        assert answer.status_code == 200, answer.text
        chunks = events(answer)
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        assert counts == sorted(counts)
        assert counts[-1] == tokens
        ends = [p["finish_reason"] for chunk in chunks for p in chunk["choices"]]
        assert [end for end in ends if end] == ["length"]


async def test_bounds_from_below_and_own_end_tokens(serving: Serving, tokenizer: Tokenizer) -> None:
    fields = {"prompt": TEXT, "temperature": 0, "max_tokens": 30, "ignore_eos": True}
    plain = await completed(serving, logprobs=0, **fields)
    third = tokenizer.token_to_id(_piece(tokenizer, plain, 2))
    ended = await completed(serving, stop_token_ids=[third], **fields)
    assert ended["choices"][0]["finish_reason"] == "stop"
    assert ended["usage"]["completion_tokens"] <= 3
    later = await completed(serving, stop_token_ids=[third], min_tokens=9, **fields)
    assert later["usage"]["completion_tokens"] >= 9
    word = plain["choices"][0]["logprobs"]["tokens"][1]
    assert (await completed(serving, stop=word, **fields))["usage"]["completion_tokens"] <= 2
    waits = await completed(serving, stop=word, min_tokens=8, **fields)
    assert waits["usage"]["completion_tokens"] > 8
    spread = await completed(serving, repetition_penalty=2.0, logprobs=0, **fields)
    words = [set(each["choices"][0]["logprobs"]["tokens"]) for each in (plain, spread)]
    assert len(words[1]) > len(words[0])


def _piece(tokenizer: Tokenizer, answer: dict[str, Any], place: int) -> str:
    """A generated token as the vocabulary spells it."""
    text = "".join(answer["choices"][0]["logprobs"]["tokens"])
    return tokenizer.encode(text, add_special_tokens=False).tokens[place]


async def test_the_last_tokens_of_a_prompt(serving: Serving) -> None:
    prompt = long_prompt(50)
    fields = {"temperature": 0, "max_tokens": 8}
    short = await completed(serving, prompt=prompt[-20:], **fields)
    cut = await completed(serving, prompt=prompt, truncate_prompt_tokens=20, **fields)
    assert cut["choices"] == short["choices"]
    assert cut["usage"]["prompt_tokens"] == 20
    whole = await completed(serving, prompt=long_prompt(5000), truncate_prompt_tokens=-1, **fields)
    assert whole["usage"]["prompt_tokens"] == 4096 - 8
