"""A stream whose node is lost goes on at another where its route lets it, and is charged once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tokenizers import Tokenizer

from controlplane.gateway.nodes.measured import retries
from controlplane.kernel.price import TokenCounts
from controlplane.kernel.rules import RouteRule, Step, Target
from tests.support.faults import only_settlement
from tests.support.fleet import MODEL
from tests.support.nodes import hand_node, named_node
from tests.support.serving import Serving
from tests.support.waiting import until


def route(
    bare: Serving, *, continues_lost: bool = False, first_token_s: float | None = None
) -> None:
    """Send every request by a rule with these fields."""
    rule = RouteRule(
        name="all",
        steps=(Step(targets=(Target(model=MODEL),)),),
        continues_lost=continues_lost,
        first_token_s=first_token_s,
    )
    keys = bare.under_test.keys
    keys.current = msgspec.structs.replace(keys.current, rules=(rule,))


async def test_another_node_goes_on_from_the_tokens_delivered(bare: Serving) -> None:
    route(bare, continues_lost=True)
    async with hand_node(bare.under_test, bare.model, name="first") as first:
        asked = asyncio.create_task(bare.chat(stream=True, stream_options={"include_usage": True}))
        job = await first.job()
        await first.answer(job, "xy")
        await until(lambda: not unanswered(bare))
        async with hand_node(bare.under_test, bare.model, name="second") as second:
            await first.socket.close()
            rest = await second.job()
            assert rest.tokens == [*job.tokens, *b"xy"]
            assert rest.sampling.max_tokens == job.sampling.max_tokens - 2
            assert rest.request == job.request
            await second.answer(rest, "z!", finish="stop")
            answer = await asked
            await bare.under_test.at_rest()
    assert said(answer.text) == decoded(bare, b"xyz!")
    assert answer.text.rstrip().endswith("data: [DONE]") and "error" not in answer.text
    assert '"prompt_tokens":4,"completion_tokens":4,"total_tokens":8' in answer.text
    assert only_settlement(bare.under_test) == TokenCounts(uncached=4, cached=0, output=4)


async def test_two_losses_are_one_answer_and_one_charge(bare: Serving) -> None:
    route(bare, continues_lost=True)
    async with hand_node(bare.under_test, bare.model, name="first") as first:
        asked = asyncio.create_task(bare.chat(stream=True))
        job = await first.job()
        await first.answer(job, "1")
        await until(lambda: not unanswered(bare))
        async with hand_node(bare.under_test, bare.model, name="second") as second:
            await first.socket.close()
            await second.answer(await second.job(), "2")
            await until(lambda: not unanswered(bare))
            async with hand_node(bare.under_test, bare.model, name="third") as third:
                await second.socket.close()
                rest = await third.job()
                assert rest.tokens == [*job.tokens, *b"12"]
                await third.answer(rest, "3456", finish="length")
                answer = await asked
                await bare.under_test.at_rest()
    assert said(answer.text) == decoded(bare, b"123456")
    assert only_settlement(bare.under_test) == TokenCounts(uncached=4, cached=0, output=6)


async def test_where_nobody_can_go_on_what_was_delivered_is_charged(bare: Serving) -> None:
    route(bare, continues_lost=True)
    async with hand_node(bare.under_test, bare.model, name="only") as only:
        asked = asyncio.create_task(bare.chat(stream=True))
        await only.answer(await only.job(), "xy")
        await until(lambda: not unanswered(bare))
        await only.socket.close()
        answer = await asked
        await bare.under_test.at_rest()
    assert '"code":"node_lost"' in answer.text and "[DONE]" not in answer.text
    assert only_settlement(bare.under_test) == TokenCounts(uncached=4, cached=0, output=2)


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"frequency_penalty": 0.5},
        {"presence_penalty": 0.5},
    ],
)
async def test_an_answer_with_more_state_than_its_tokens_ends(
    bare: Serving, fields: dict[str, object]
) -> None:
    route(bare, continues_lost=True)
    await check_ends(bare, **fields)


async def test_without_the_route_s_word_a_stream_ends(bare: Serving) -> None:
    route(bare)
    await check_ends(bare)


async def check_ends(bare: Serving, **fields: object) -> None:
    """A lost node ends the stream, though another is there."""
    async with hand_node(bare.under_test, bare.model, name="first") as first:
        asked = asyncio.create_task(bare.chat(stream=True, **fields))
        await first.answer(await first.job(), "xy")
        await until(lambda: not unanswered(bare))
        async with named_node(bare.under_test, bare.model, "second"):
            await first.socket.close()
            answer = await asked
            await bare.under_test.at_rest()
    assert '"code":"node_lost"' in answer.text


async def test_a_route_can_bound_the_wait_for_the_first_token(bare: Serving) -> None:
    route(bare, first_token_s=0.05)
    async with hand_node(bare.under_test, bare.model, name="slow") as slow:
        asked = asyncio.create_task(bare.chat())
        job = await slow.job()
        async with named_node(bare.under_test, bare.model, "quick"):
            answer = await asked
            await until(lambda: slow.cancelled == [job.request])
            await bare.under_test.at_rest()
    assert (answer.status_code, answer.headers["x-sluice-node"]) == (200, "quick")


async def test_without_a_retry_left_a_request_is_shed(
    bare: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRIES_PER_S", 0.0)
    while bare.under_test.world.retries.withdraw():
        pass
    async with hand_node(bare.under_test, bare.model, name="first") as first:
        asked = asyncio.create_task(bare.chat())
        await first.job()
        async with named_node(bare.under_test, bare.model, "second"):
            await first.socket.close()
            answer = await asked
            await bare.under_test.at_rest()
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert only_settlement(bare.under_test).output == 0


def unanswered(bare: Serving) -> list[str]:
    """Models of jobs without a first token, on all nodes."""
    links = bare.under_test.fleet.nodes().values()
    return [model for link in links for model in link.jobs.unanswered()]


def said(text: str) -> str:
    """What a stream of chat chunks says."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    chunks = [msgspec.json.decode(line) for line in lines]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", ())]
    return "".join(delta.get("content") or "" for delta in deltas)


def decoded(bare: Serving, tokens: bytes) -> str:
    """The text of these token ids."""
    tokenizer = Tokenizer.from_file(str(bare.model / "tokenizer.json"))
    return str(tokenizer.decode(list(tokens)))
