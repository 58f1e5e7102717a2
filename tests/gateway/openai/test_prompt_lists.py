"""Several prompts in one request, and prompts that are repeated: money, ends, refusals, claims."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from controlplane.kernel.price import TokenCounts, charge_nano
from inference.contract.capabilities import Capability
from inference.contract.frames import Job
from inference.contract.parts import TokenLogprob
from tests.support.fleet import MODEL, VOCAB_SIZE, echo_node, make_output, make_step, make_usage
from tests.support.nodes import HandNode, hand_node
from tests.support.ports import PRICE
from tests.support.serving import Serving
from tests.support.waiting import until

PROMPTS = ["ab", "cdefg", "h"]


def ids(text: str) -> list[int]:
    """Tokens of the byte model, whose first is the first printable character."""
    return [ord(char) - ord("!") for char in text]


ABLE = [Capability.PROMPTS, Capability.PROMPT_LOGPROBS, Capability.LOGPROBS]


@pytest.mark.parametrize(
    ("prompt", "texts", "tokens"),
    [
        (PROMPTS, ["ababab", "cdefgc", "hhhhhh"], 8),
        ([ids("ab"), ids("c")], ["ababab", "cccccc"], 3),
        (["ab"], ["ababab"], 2),
        ([ids("ab")], ["ababab"], 2),
    ],
)
async def test_a_choice_for_each_and_one_charge(
    serving: Serving, prompt: Any, texts: list[str], tokens: int
) -> None:
    answer = (await serving.complete(prompt=prompt, n=2)).json()
    assert [each["text"] for each in answer["choices"]] == [t for t in texts for _ in range(2)]
    assert [each["index"] for each in answer["choices"]] == list(range(2 * len(texts)))
    counts = (tokens, 12 * len(texts))
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == counts
    ledger = serving.under_test.ledger
    await until(lambda: ledger.settled)
    (charge,) = ledger.settled.values()
    whole = TokenCounts(uncached=counts[0], cached=0, output=counts[1])
    assert charge.amount_nano == charge_nano(PRICE, whole)


async def test_a_stream_ends_every_choice(serving: Serving) -> None:
    answer = await serving.complete(
        prompt=PROMPTS, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = [
        json.loads(part.removeprefix("data: ")) for part in answer.text.split("\n\n")[:-2]
    ]
    texts = ["", "", ""]
    ends: list[int] = []
    for chunk in chunks:
        (part,) = chunk["choices"]
        texts[part["index"]] += part["text"]
        ends += [part["index"]] if part["finish_reason"] else []
    assert texts == ["ababab", "cdefgc", "hhhhhh"]
    assert sorted(ends) == [0, 1, 2]
    assert (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == (8, 18)


async def test_more_prompts_than_credits(steady: Serving) -> None:
    """They are one request, and so is what comes beside them."""
    async with echo_node(steady.under_test.fleet_url, steady.model, tokens_per_s=200.0, credits=2):
        await steady.under_test.served()
        many = asyncio.create_task(steady.complete(prompt=["ab"] * 128, max_tokens=20))
        one = await steady.complete(max_tokens=1)
        assert one.status_code == 200
        assert len((await many).json()["choices"]) == 128
        await steady.under_test.at_rest()


async def test_a_client_that_leaves_frees_all(serving: Serving) -> None:
    body = {"model": MODEL, "prompt": PROMPTS, "max_tokens": 1000, "stream": True}
    async with serving.client.stream("POST", "/v1/completions", json=body) as answer:
        await anext(answer.aiter_raw())
    await serving.under_test.at_rest()
    ledger = serving.under_test.ledger
    await until(lambda: ledger.settled)
    (charge,) = ledger.settled.values()
    assert 0 < charge.counts.output < 3000
    assert charge.counts.uncached == 8


@pytest.mark.parametrize("stream", [False, True])
async def test_echo_without_scores(serving: Serving, stream: bool) -> None:
    answer = await serving.complete(prompt=PROMPTS, echo=True, stream=stream)
    texts = ["", "", ""]
    bodies = [answer.json()] if not stream else [
        json.loads(part.removeprefix("data: ")) for part in answer.text.split("\n\n")[:-2]
    ]  # fmt: skip
    for body in bodies:
        for choice in body["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == ["abababab", "cdefgcdefgc", "hhhhhhh"]
    given = (await serving.complete(prompt=[ids("ab"), ids("c")], echo=True)).json()
    assert [each["text"] for each in given["choices"]] == ["abababab", "ccccccc"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": ["a"] * 65, "n": 2}, "prompt"),
        ({"prompt": ["a", [1]]}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": [[1], []]}, "prompt[1]"),
        ({"prompt": [[1], [-1]]}, "prompt"),
        ({"prompt": [[1], [256]]}, "prompt"),
        ({"prompt": ["a", "b" * 5000]}, "prompt"),
        ({"prompt": ["ab" * 2000] * 100}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 0, "echo": True}, "max_tokens"),
        ({"logprobs": 1, "echo": True}, "echo"),
        ({"repetition_penalty": 1.5}, "repetition_penalty"),
        ({"stop_token_ids": [1]}, "stop_token_ids"),
        ({"ignore_eos": True, "structured_outputs": {"regex": "a"}}, "ignore_eos"),
    ],
)
async def test_refused_by_name(serving: Serving, fields: dict[str, Any], param: str) -> None:
    answer = await serving.complete(**{"max_tokens": 1, **fields})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert not any(each.amount_nano for each in serving.under_test.ledger.settled.values())


async def test_null_is_not_sent(serving: Serving) -> None:
    fields = (
        "ignore_eos", "min_tokens", "repetition_penalty", "stop_token_ids", "echo",
        "truncate_prompt_tokens",
    )  # fmt: skip
    assert (await serving.complete(**dict.fromkeys(fields))).status_code == 200
    assert (await serving.chat(**dict.fromkeys(fields[:4]))).status_code == 200
    neutral = {"repetition_penalty": 1.0, "min_tokens": 0, "ignore_eos": False}
    assert (await serving.complete(**neutral)).status_code == 200


async def test_usage_in_every_chunk(serving: Serving) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = await serving.chat(stream=True, stream_options=options)
    chunks = [json.loads(part.removeprefix("data: ")) for part in answer.text.split("\n\n")[:-2]]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] == 6
    assert all(chunk["usage"]["prompt_tokens"] == 4 for chunk in chunks)
    await serving.chat(stream=True, stream_options={"continuous_usage_stats": True})


def scores(text: str) -> list[TokenLogprob]:
    return [TokenLogprob(token=each, logprob=-1.0, top=[(each, -1.0)]) for each in ids(text)]


async def begun(serving: Serving, node: HandNode, **fields: Any) -> tuple[Any, Job]:
    body = {"prompt": ["abc", "de"], "max_tokens": 1, "echo": True, "logprobs": 1, **fields}
    asking = asyncio.create_task(serving.complete(**body))
    return asking, await node.job()


async def test_scores_come_in_parts(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model, capabilities=ABLE) as node:
        asking, job = await begun(bare, node)
        assert (job.tokens, job.lengths, job.hashes) == (ids("abcde"), [3, 2], b"")
        last = scores("x")
        steps = [
            {"prompt_logprobs": scores("b"), "tokens": [], "usage": make_usage(2, 0, 0)},
            {"choice": 1, "prompt_logprobs": scores("e"), "tokens": [],
             "usage": make_usage(4, 0, 0)},
            {"prompt_logprobs": scores("c"), "tokens": ids("x"), "logprobs": last,
             "usage": make_usage(5, 0, 1), "finish": "length"},
            {"choice": 1, "tokens": [], "logprobs": last, "finish": "stop",
             "usage": make_usage(5, 0, 2)},
        ]  # fmt: skip
        for each in steps:
            await node.send(make_step(make_output(job.request, **each)))
        answer = (await asking).json()
    first, second = answer["choices"]
    assert (first["text"], second["text"]) == ("abcx", "de")
    assert first["logprobs"]["token_logprobs"] == [None, -1.0, -1.0, -1.0]
    assert first["logprobs"]["text_offset"] == [0, 1, 2, 3]
    assert second["logprobs"]["tokens"] == ["d", "e", "x"]
    assert second["logprobs"]["top_logprobs"] == [None, {"e": -1.0}, {"x": -1.0}]
    assert answer["usage"]["total_tokens"] == 7


@pytest.mark.parametrize(
    "impossible",
    [
        {"prompt_logprobs": scores("a"), "tokens": []},
        {"prompt_logprobs": scores("bcd"), "tokens": []},
        {"prompt_logprobs": scores("b"), "tokens": [], "choice": 2},
        {"prompt_logprobs": scores("b"), "tokens": ids("x"), "logprobs": scores("x")},
        {"tokens": [], "finish": "stop"},
        {"tokens": [], "choice": 2, "finish": "stop"},
        {"prompt_logprobs": [TokenLogprob(token=65, logprob=float("nan"), top=[])], "tokens": []},
        {"prompt_logprobs": [TokenLogprob(token=65, logprob=0.0, top=[(VOCAB_SIZE, 0.0)])],
         "tokens": []},
        {"prompt_logprobs": scores("bc"), "tokens": ids("x"), "logprobs": scores("xy")},
    ],
)  # fmt: skip
async def test_impossible_scores(bare: Serving, impossible: dict[str, Any]) -> None:
    async with hand_node(bare.under_test, bare.model, capabilities=ABLE) as node:
        asking, job = await begun(bare, node)
        output = make_output(job.request, usage=make_usage(2, 0, 0))
        await node.send(make_step(msgspec.structs.replace(output, **impossible)))
        # What cannot be true costs the node its job.
        await until(lambda: node.cancelled == [job.request])
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
