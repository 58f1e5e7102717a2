"""I4: requests go where their prompt is cached, the receipt says why, and no cache is guessed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import httpx2

from controlplane.kernel.receipt import Receipt, read_receipt
from inference.compact.options import CompactOptions
from inference.engines.compact import CompactEngine
from inference.node.assets import ModelAssets
from inference.node.options import NodeOptions
from inference.node.service import Node
from tests.support.fleet import MODEL
from tests.support.gateway import GatewayUnderTest
from tests.support.nodes import HandNode, hand_node, let_in
from tests.support.serving import Serving
from tests.support.shipped import SHIPPED, long_prompt
from tests.support.waiting import until

BLOCK = 32
PREFIX = 512
GROUPS = 4
SIBLINGS = 5


@contextlib.asynccontextmanager
async def compact_node(under_test: GatewayUnderTest, name: str) -> AsyncIterator[Node]:
    options = CompactOptions(name=MODEL, device="cpu", block_size=BLOCK, threads=1)
    settings = NodeOptions(
        gateways=(under_test.fleet_url,), name=name, credential=let_in(under_test, name)
    )
    node = Node(CompactEngine(SHIPPED, options), ModelAssets(SHIPPED), settings)
    await node.start()
    try:
        await until(
            lambda: any(link.identity.name == name for link in under_test.fleet.candidates(MODEL))
        )
        yield node
    finally:
        await node.close()


@contextlib.asynccontextmanager
async def two_nodes(bare: Serving) -> AsyncIterator[None]:
    async with compact_node(bare.under_test, "ada"), compact_node(bare.under_test, "bob"):
        await until(lambda: not bare.under_test.fleet.index(BLOCK).unknown)
        yield
        await bare.under_test.at_rest()


def prompt_of(group: int, sibling: int) -> list[int]:
    """A prefix that a group shares, and a few tokens of one's own."""
    tokens = long_prompt(PREFIX)
    return [*tokens[group:], *tokens[:group], 500 + group, 600 + sibling, 700]


async def ask(bare: Serving, prompt: list[int], **fields: str) -> httpx2.Response:
    answer = await bare.complete(prompt=prompt, max_tokens=2, **fields)
    assert answer.status_code == 200, answer.text
    return answer


def cached(answer: httpx2.Response) -> int:
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def receipts(bare: Serving) -> list[Receipt]:
    return [read_receipt(record.receipt) for record in bare.under_test.recorder.records]


async def test_siblings_find_their_prefix(bare: Serving) -> None:
    async with two_nodes(bare):
        homes: dict[int, str] = {}
        for sibling in range(SIBLINGS):
            for group in range(GROUPS):
                answer = await ask(bare, prompt_of(group, sibling))
                home = homes.setdefault(group, answer.headers["x-sluice-node"])
                assert answer.headers["x-sluice-node"] == home
                assert cached(answer) == (PREFIX if sibling else 0)
        for told in receipts(bare)[GROUPS:]:
            assert told.index == "exact"
            assert told.available_tokens == told.predicted_cached_tokens == PREFIX
            assert told.delivered_cached_tokens == PREFIX
            assert {each.node for each in told.candidates} == {"ada", "bob"}
            assert told.why.startswith(f"{told.node} had 512 of 515 prompt tokens cached")


async def test_cold_prefixes_spread(bare: Serving) -> None:
    async with two_nodes(bare):
        # Short, so that the machine has computed them all long before a client gives up.
        prompts = [prompt_of(group, 0)[: 2 * BLOCK] for group in range(8)]
        answers = await asyncio.gather(*(ask(bare, prompt) for prompt in prompts))
        nodes = Counter(answer.headers["x-sluice-node"] for answer in answers)
        assert set(nodes) == {"ada", "bob"}


async def test_a_cache_key_brings_different_prompts_together(bare: Serving) -> None:
    async with two_nodes(bare):
        homes: dict[str, set[str]] = {}
        for group in range(4):
            for key in "abcdef":
                # Nothing of it is cached anywhere, except that of a group by another key.
                prompt = [ord(key), *prompt_of(group, 0)[: 2 * BLOCK]]
                answer = await ask(bare, prompt, prompt_cache_key=key)
                assert cached(answer) == 0
                homes.setdefault(key, set()).add(answer.headers["x-sluice-node"])
        assert all(len(nodes) == 1 for nodes in homes.values())
        assert set.union(*homes.values()) == {"ada", "bob"}
        told = receipts(bare)[-1]
        assert told.index == "exact"
        assert "so the prompt_cache_key chose the node" in told.why
        # Where a node has the prompt, that counts and not the key.
        prompt = [ord("a"), *prompt_of(0, 0)[: 2 * BLOCK]]
        for key in "abcdef":
            answer = await ask(bare, prompt, prompt_cache_key=key)
            assert {answer.headers["x-sluice-node"]} == homes["a"]
            assert cached(answer) == 2 * BLOCK


async def test_a_lost_cache_is_no_longer_counted_on(bare: Serving) -> None:
    async with compact_node(bare.under_test, "ada"), compact_node(bare.under_test, "bob"):
        prompt = prompt_of(0, 0)
        home = (await ask(bare, prompt)).headers["x-sluice-node"]
        assert cached(await ask(bare, prompt)) == PREFIX
        lost = bare.under_test.fleet.nodes()[home]
        lost.on_close("as if the network was cut")
        other = {"ada": "bob", "bob": "ada"}[home]
        answer = await ask(bare, prompt)
        assert (answer.headers["x-sluice-node"], cached(answer)) == (other, 0)
        last = receipts(bare)[-1]
        assert (last.available_tokens, last.predicted_cached_tokens) == (0, 0)
        await bare.under_test.at_rest()


async def answer_all(node: HandNode) -> None:
    while True:
        await node.answer(await node.job(), "ok", finish="stop")


async def test_where_no_cache_is_known_siblings_still_meet(bare: Serving) -> None:
    # Neither sends a snapshot of its cache, so what they have is unknown.
    async with (
        hand_node(bare.under_test, bare.model, name="ada") as ada,
        hand_node(bare.under_test, bare.model, name="bob") as bob,
    ):
        answering = [asyncio.create_task(answer_all(node)) for node in (ada, bob)]
        homes: dict[str, set[str]] = {}
        for _ in range(4):
            for group in "abcdefgh":
                answer = await bare.complete(prompt=group * 200 + "?", max_tokens=2)
                homes.setdefault(group, set()).add(answer.headers["x-sluice-node"])
        for task in answering:
            task.cancel()
        assert all(len(nodes) == 1 for nodes in homes.values())
        assert set.union(*homes.values()) == {"ada", "bob"}
        assert {told.index for told in receipts(bare)} == {"ring"}
        await bare.under_test.at_rest()
